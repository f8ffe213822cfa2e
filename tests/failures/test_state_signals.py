"""hvdrun --state-dir: signals lose no commit, and a training that stops early resumes."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from failures.test_state_dir import went_on
from support import hvdrun

INTERRUPTED = """
import os, time
os.chdir("/")
import numpy as np
import hvd.numpy as hvd
from hvd._elastic import state_file
from hvd.elastic import ObjectState, broadcast_from_rank_0, run

state_file._REST = 1e9
hvd.init()

@run
def train(state):
    while state.step < 9:
        state.step += 1
        state.commit()
        if state.step % 3 == 1:
            time.sleep(0.3)  # then the thread rests
        if state.step % 3 == 0 and state.step < 9:
            print("waiting", flush=True)
            if hvd.rank() > 0:
                time.sleep(100)
            hvd.allreduce(np.ones(1))

train(ObjectState(broadcast_from_rank_0, hvd.rank, step=0))
"""


def test_an_interrupted_job_of_fixed_ranks_loses_no_commit(tmp_path: pathlib.Path) -> None:
    """The thread rests when the signal comes.  The script leaves the folder that DIR is relative to."""
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    argv = ["-np", "2", "--state-dir", "kept", sys.executable, str(script)]
    for number in (signal.SIGTERM, signal.SIGINT):
        with hvdrun.started(*argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
            assert running.stdout is not None
            seen = ""
            while seen.count("waiting") < 2:
                line = running.stdout.readline()
                assert line, seen
                seen += line
            running.send_signal(number)
            seen += running.stdout.read()  # communicate() forgets what readline() has buffered
            running.wait(timeout=60)
        assert ("goes on from commit 3" in seen) == (number == signal.SIGINT), seen
    done = hvdrun.run(*argv, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert went_on(done) == 6
    assert list((tmp_path / "kept").iterdir()) == []


STOPPED = """
import time
import hvd.numpy as hvd
from hvd.elastic import ObjectState, broadcast_from_rank_0, run

hvd.init()

@run
def train(state):
    resumed = state.step > 0
    while not resumed and not hvd.should_stop():
        state.step += 1
        state.commit()
        print("step", flush=True)
        time.sleep(0.02)

state = ObjectState(broadcast_from_rank_0, hvd.rank, step=0)
train(state)
print("at", state.step)
"""


@pytest.mark.parametrize("options", [["-np", "2"], ["-np", "2", "--min-np", "2"]], ids=["fixed", "elastic"])
def test_a_training_that_stops_early_keeps_its_file(tmp_path: pathlib.Path, options: list[str]) -> None:
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED)
    argv = [*options, "--state-dir", "kept", sys.executable, str(script)]
    with hvdrun.started(*argv, cwd=tmp_path) as running:
        for _ in range(6):
            assert "step" in hvdrun.next_line(running.stdout)
        running.send_signal(signal.SIGTERM)
        assert running.stdout is not None
        ends = {int(line.rpartition(" ")[2]) for line in running.stdout.read().splitlines() if "] at " in line}
        running.wait(timeout=60)
    done = hvdrun.run(*argv, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert {went_on(done)} == ends
    assert list((tmp_path / "kept").iterdir()) == []  # the second training was done


MEETING = """
import os, signal, time
import hvd.numpy as hvd
from hvd._elastic import state_file
from hvd.elastic import ObjectState, broadcast_from_rank_0, run

state_file._REST = 1e9
if os.environ.get("HVD_ELASTIC_LATE") == "1":
    print("late", flush=True)
    time.sleep(100)
hvd.init()

@run
def train(state):
    while state.step < 9:
        state.step += 1
        state.commit()
        if state.step == 1:
            time.sleep(0.3)  # then the thread rests
        if state.step == 3 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

train(ObjectState(broadcast_from_rank_0, hvd.rank, step=0))
"""


def test_sigterm_while_ranks_meet(tmp_path: pathlib.Path) -> None:
    """Rank 0 waits for a new rank. The job ends at once, and its last commit is in the state folder."""
    script = tmp_path / "meeting.py"
    script.write_text(MEETING)
    argv = ["-np", "2", "--min-np", "2", "--grace", "30", "--state-dir", "kept", sys.executable, str(script)]
    with hvdrun.started(*argv, cwd=tmp_path) as running:
        assert "late" in hvdrun.next_line(running.stdout)
        begun = time.monotonic()
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        assert time.monotonic() - begun < 15 * hvdrun.patience()
    done = hvdrun.run(*argv, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert went_on(done) in (3, 4)  # rank 0 may commit step 4 before it learns of the death
