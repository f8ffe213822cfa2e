"""Random operations against a plain NumPy model (job.py, operations.py, model.py), on 2 to 6 ranks, one node and several.

HVD_PROPERTY_SEED repeats a seed; the default is random.  A failure prints it, and one line that repeats it.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

import pytest

from python.harness import environment, has, python
from support.hvdrun import program

JOB = pathlib.Path(__file__).resolve().parent / "job.py"
SEED = int(os.environ.get("HVD_PROPERTY_SEED", "0")) or time.time_ns() % 1_000_000_007
WORLDS = [(2, 0), (3, 0), (4, 2), (5, 2), (6, 3), (2, 1)]  # number of ranks, and ranks per node (0: all on one)


def run_cases(ranks: int, per_node: int, cases: int, limit: float) -> None:
    """A job with `cases` cases; after a failure its output has the seed, the case and the command to repeat it."""
    if not has("numpy"):
        pytest.skip(f"{python()} lacks numpy")
    command = [program(), "-np", str(ranks), "--python", python(), str(JOB), str(SEED), "0", str(cases)]
    done = subprocess.run(
        command,
        env=environment(HVD_RANKS_PER_NODE=str(per_node)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
    )
    assert done.returncode == 0 and f"{cases} cases hold" in done.stdout, f"seed {SEED}\n{done.stdout[-6000:]}"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("ranks", "per_node"), WORLDS)
def test_random_operations(ranks: int, per_node: int) -> None:
    run_cases(ranks, per_node, 34, 110)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("ranks", "per_node"), WORLDS)
def test_many_random_operations(ranks: int, per_node: int) -> None:
    run_cases(ranks, per_node, 334, 890)
