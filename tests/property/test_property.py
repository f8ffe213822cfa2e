"""Random operations against a plain NumPy model (job.py, operations.py, model.py), on 2 to 6 ranks, one node and several.

HVD_PROPERTY_SEED: repeat a seed; else it is another one each time.  A failure prints it, and one line that repeats it.
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
WORLDS = [(2, 0), (3, 0), (4, 2), (5, 2), (6, 3), (2, 1)]  # ranks, and how many of them make a node (0: all)


def run_cases(ranks: int, per_node: int, cases: int, limit: float) -> None:
    """A job of so many cases; its output shows seed, case and how to repeat it where one fails."""
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
