"""Calls tools of `hvdrun mcp` with the client of the package mcp: mcp_client.py HVDRUN PYTHON PATH < CALLS.

PATH is the server's PYTHONPATH, if not empty.
CALLS is a JSON list of [tool, arguments].  Prints JSON: the names of the tools, and for each call whether it failed, and its
text.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    calls = json.load(sys.stdin)
    env = {**os.environ, **({"PYTHONPATH": sys.argv[3]} if sys.argv[3] else {})}
    server = StdioServerParameters(command=sys.argv[1], args=["mcp", "--python", sys.argv[2]], env=env)
    answers: list[tuple[bool, str]] = []
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        for tool, arguments in calls:
            result: Any = await session.call_tool(tool, arguments)
            failed = getattr(result, "is_error", None) or getattr(result, "isError", False)
            answers.append((bool(failed), result.content[0].text if result.content else ""))
    json.dump({"tools": {t.name: t.annotations.model_dump() for t in tools if t.annotations}, "answers": answers}, sys.stdout)


asyncio.run(main())
