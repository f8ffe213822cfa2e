"""Kills any process of a job over two hosts, at any time: soon nothing of the job is left on either (kills.py)."""

from __future__ import annotations

import os
import subprocess

import pytest

from campaigns import engine, kills
from netns.cluster import why_not
from support import hvdrun
from support.forms import few


def nothing_left(first: int, number: int, launcher: str, mpirun: str, longest: float, package: str) -> None:
    """Makes `number` kills; the table goes to the log."""
    if reason := why_not():
        pytest.skip(reason)
    words = ["--first", first, "--kills", number, "--launcher", launcher, "--mpirun", mpirun, "--longest", longest]
    outcomes = engine.run(kills.CAMPAIGN, *map(str, words), "--package", package)
    print(engine.table(outcomes))
    assert list(map(str, engine.wrong(outcomes))) == []
    remarks = [str(outcome) for outcome in outcomes if outcome.about]
    assert len(remarks) <= number // 50, remarks


def test_what_has_ended_by_itself_is_no_victim() -> None:
    """A subshell may end between the listing of the host's processes and the kill."""
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert kills.parent(child.pid) is None
    child.wait()
    assert kills.parent(child.pid) is None
    assert not kills.killed(child.pid)
    assert kills.parent(os.getpid()) == os.getppid()


@pytest.mark.parametrize("launcher", few(kills.PATTERNS))
def test_three_kills_of_each_kind(package: str, launcher: str) -> None:
    """Kills in the first seconds of a job leave no process and no file."""
    number = 3 * len(kills.victims(launcher))
    nothing_left(int(os.environ.get("HVD_TEST_SEED", "0")), number, launcher, "/usr/bin/mpirun", 1.5, package)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("launcher", kills.PATTERNS)
def test_500_kills(package: str, launcher: str) -> None:
    """500 kills, at moments from 0 to 5 s after the start."""
    nothing_left(1000, 500, launcher, "/usr/bin/mpirun", 5.0, package)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mpirun", [row for row in hvdrun.mpiruns() if row.id == "openmpi5"])
@pytest.mark.parametrize("launcher", kills.PATTERNS)
def test_kills_under_open_mpi_5(package: str, launcher: str, mpirun: str) -> None:
    """Kills with Open MPI 5 as launcher."""
    nothing_left(2000, 70, launcher, mpirun, 5.0, package)
