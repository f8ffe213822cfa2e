"""Runs checks in a driver process of Spark or Ray: one for each JSON line on stdin, in order.

A line {"check": NAME, "args": {…}} calls checks.NAME(subject, **args). The answer is one JSON line on the original stdout. Its
keys are "value", or "error" and "kind"; and "out", "err", "seconds". All other output of the process goes to stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import traceback
from types import ModuleType

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class Copy(io.StringIO):
    """Stores written text, and copies it to the log."""

    def write(self, text: str) -> int:
        sys.__stderr__.write(text)  # type: ignore[union-attr]
        return super().write(text)


def answer(checks: ModuleType, subject: object, line: str) -> dict[str, object]:
    """Runs one check to its end."""
    asked, out, err, began = json.loads(line), Copy(), Copy(), time.monotonic()
    reply: dict[str, object]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            reply = {"value": getattr(checks, asked["check"])(subject, **asked.get("args", {}))}
        except BaseException as error:
            traceback.print_exc(file=sys.__stderr__)
            reply = {"error": str(error), "kind": type(error).__name__}
    return {**reply, "out": out.getvalue(), "err": err.getvalue(), "seconds": time.monotonic() - began}


def serve(checks: ModuleType, subject: object) -> None:
    """Says that the driver is up; then answers until stdin ends."""
    print(json.dumps({"value": "up"}), file=ANSWERS, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(checks, subject, line)), file=ANSWERS, flush=True)
