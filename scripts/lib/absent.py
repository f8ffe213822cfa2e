"""absent.py REQUIREMENT…: prints those that are not installed in this Python as they ask (names, == and >= only)."""

from __future__ import annotations

import importlib.metadata
import re
import sys


def numbers(version: str) -> list[int]:
    """The release part of a version: "2.15.0+cpu" is [2, 15, 0]."""
    return [int(x) for x in re.findall(r"\d+", version.split("+")[0])]


def is_there(requirement: str) -> bool:
    """Whether an installed package satisfies the requirement."""
    match = re.fullmatch(r"([A-Za-z0-9_.-]+?)(?:(==|>=)([0-9.]+))?", requirement)
    if match is None:
        raise SystemExit(f"absent.py: cannot read {requirement!r}")
    name, relation, version = match.groups()
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    if relation == "==":
        return numbers(installed) == numbers(version)
    return relation is None or numbers(installed) >= numbers(version)


print(" ".join(word for word in sys.argv[1:] if not is_there(word)))
