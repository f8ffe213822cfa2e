"""The arguments of the jobs of slowness.py: CAUSE RANK STEPS; RANK -1: all ranks have that cause."""

from __future__ import annotations

import os
import sys

CAUSE, WHO, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
BATCH = 16
ROWS = BATCH * (STEPS + 1)
ON_A_DEVICE = "PLANTED_ON_A_DEVICE" in os.environ  # slowness.py's option


def planted(cause: str) -> bool:
    """Returns whether this rank has the planted cause."""
    return cause == CAUSE and WHO in (-1, int(os.environ["HOROVOD_RANK"]))
