"""Signals that hvdrun's parent ignores or blocks: exec inherits both, but no job may be affected."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from support import hvdrun

mpirun = pytest.mark.parametrize("launcher", ["hvdrun", "mpirun"])
# The rank prints its inherited signal state.
SHOW = ["grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"]


def deaf() -> None:
    """Ignores every signal but SIGHUP, and blocks all: for the child, before its exec."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGHUP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


@mpirun
def test_a_parent_that_ignores_and_blocks_all(launcher: str) -> None:
    """The job ends normally, and its ranks start with no signal ignored or blocked."""
    done = hvdrun.run("--launcher", launcher, "-np", "2", "--", *SHOW, preexec_fn=deaf, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"Sig(?:Blk|Ign):\s+(\w+)", done.stdout) == ["0" * 16] * 4


@mpirun
def test_signals_end_a_job_of_a_deaf_parent(launcher: str) -> None:
    """SIGTERM, and the failure of a rank."""
    with hvdrun.started(
        "--launcher", launcher, "-np", "1", "--", "sh", "-c", "echo up; exec sleep 300", preexec_fn=deaf
    ) as job:
        assert hvdrun.next_line(job.stdout)
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == 143
    done = hvdrun.run("--launcher", launcher, "-np", "1", "--", "false", preexec_fn=deaf, timeout=60)
    assert done.returncode == 1


def test_an_elastic_job_of_a_deaf_parent() -> None:
    """A parent that ignores all signals changes neither the exit code nor --time-limit."""
    done = hvdrun.run("-np", "1", "--min-np", "1", "--", "sh", "-c", "exit 5", preexec_fn=deaf, timeout=60)
    assert done.returncode == 5, done.stderr
    done = hvdrun.run("-np", "1", "--min-np", "1", "--time-limit", "1", "--grace", "1", "--", "sleep", "300", preexec_fn=deaf)
    assert done.returncode == 6, done.stderr


RUN = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from hvd import run

def fine(): return int(os.environ["HVD_RANK"]) + 1
def wrong(): raise ValueError("planted")
def slot(): raise SystemExit(4)

for more in ({}, {"min_num_proc": 2}):
    print(run(fine, num_proc=2, **more))
    for bad in (wrong, slot):
        try: print(run(bad, num_proc=2, **more))
        except RuntimeError as error: print(str(error).splitlines()[0])
try: run(fine, hosts="nonsense:-1")
except (ValueError, RuntimeError) as error: print(error)
"""


def test_run_in_a_program_that_ignores_sigchld() -> None:
    """hvd.run() learns hvdrun's exit code though the kernel reaps hvdrun."""
    pytest.importorskip("cloudpickle")
    env = hvdrun.environment(HVD_RUN_PROGRAM=hvdrun.program())
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=100, env=env)
    lines = done.stdout.splitlines()
    assert len(lines) > 6, done.stdout + done.stderr
    for first in (0, 3):
        assert lines[first] == "[1, 2]"
        assert re.fullmatch(r"rank [01] on localhost ended with exit code 1", lines[first + 1])
        assert re.fullmatch(r"rank [01] on localhost ended with exit code 4", lines[first + 2])
    assert "slots must be > 0" in lines[6]
