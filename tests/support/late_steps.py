"""A job of two ranks, one of which delays the steps, so that there is something to report."""

from __future__ import annotations

import os
import pathlib
import sys

from support import hvdrun

PACKAGE = pathlib.Path(os.environ.get("HVD_BUILD_DIR", hvdrun.ROOT / "build")).absolute() / "src/python"
# Rank 1 is 15 ms late to each of its steps, which are rounds of operations.
LATE = """
import sys, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
for step in range(int(sys.argv[1])):
    if hvd.rank() == 1: time.sleep(0.015)
    hvd.allreduce(np.ones(1000), name="gradient")
"""


def argv(*options: str, steps: int = 200) -> list[str]:
    return ["-np", "2", *options, "--", sys.executable, "-c", LATE, str(steps)]
