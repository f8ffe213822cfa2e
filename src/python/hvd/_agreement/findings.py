"""Tells hvdrun what --agreement has found, for the verdict and the timeline (src/wire/shared/agreement_finding.h)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence

from hvd._runtime import guard_link as _guard_link

__all__ = ["tell"]

_FINDING = 53  # wire::Type::finding
_MOST_RANKS = 64
_MOST_CHARACTERS = 1000
_NOT_FINITE = re.compile(r"\w+ in the sum '(.*)' in step (\d+), element \d+(?:, from ranks? (\d[\d, -]*))?")


def tell(kind: str, line: str, step: int, ranks: Sequence[int]) -> None:
    """Sends one finding, unless the guard is slow.  Without hvdrun or without a kind it does nothing.

    kind: a word of the wire.  line: for the user.  step: of the watch.  ranks: of the world, that the line is about.  A line
    about NaN is the runtime's, and has its own step and ranks.
    """
    tensor, named, _ = line.partition(", elements ")
    if not named:
        tensor = ""
    if kind == "not_finite" and (found := _NOT_FINITE.match(line)):
        tensor, step, ranks = found[1], int(found[2]), _listed(found[3] or "")
    if not kind:
        return
    finding = {
        "kind": kind,
        "tensor": tensor[:_MOST_CHARACTERS],
        "step": step,
        "ranks": list(ranks)[:_MOST_RANKS],
        "text": line[:_MOST_CHARACTERS],
        "time_ns": time.monotonic_ns(),
    }
    _guard_link.send(_FINDING, json.dumps(finding).encode())


def _listed(text: str) -> list[int]:
    """The numbers of "0-2, 5"."""
    parts = [part.split("-") for part in re.findall(r"\d+(?:-\d+)?", text)]
    return [rank for part in parts for rank in range(int(part[0]), int(part[-1]) + 1)]
