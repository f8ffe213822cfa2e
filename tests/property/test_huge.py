"""More than 2^31 elements, between two processes of one node and of two: all counts have 64 bits."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from python.harness import environment, has, python
from support.hvdrun import program

HUGE = pathlib.Path(__file__).resolve().parent / "huge.py"


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("per_node", [0, 1], ids=["one node", "two nodes"])
def test_more_than_two_to_the_31(per_node: int) -> None:
    if not has("numpy"):
        pytest.skip(f"{python()} lacks numpy")
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < 12 << 30:
        pytest.skip(f"needs 12 GiB of memory, {free >> 30} are free")
    done = subprocess.run(
        [program(), "-np", "2", "--python", python(), str(HUGE)],
        env=environment(HVD_RANKS_PER_NODE=str(per_node)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0 and done.stdout.count("#fine") == 2, done.stdout[-4000:]
