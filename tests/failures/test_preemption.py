"""SIGTERM (preemption) in a long step: the rank leaves at its end; where the grace is shorter, the last commit counts."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time

import pytest

from failures import fault_job
from failures.test_elastic import COUNTER, SAMPLES, environment
from support import hvdrun

STEP = 0.6  # seconds
RANKS = 4


class Preempted:
    """A job of four ranks and long steps, of which some were told to leave amid one: what has become of it."""

    def __init__(self, folder: pathlib.Path, victims: int, grace: float, at_guards: bool) -> None:
        options = ["-np", str(RANKS), "--min-np", "1", "--max-np", str(RANKS), "--grace", str(grace)]
        env = environment(folder, ELASTIC_PAUSE="0", ELASTIC_WORK=str(STEP))
        with hvdrun.started(*options, "--python", sys.executable, str(COUNTER), env=env) as process:
            hvdrun.wait_until(lambda: len(self.lines_of(folder, "steps")) > 2 or process.poll() is not None, "steps", 60)
            time.sleep(STEP / 4)
            for pid in fault_job.ranks_of(process.pid)[:victims]:
                os.kill(fault_job.parent(pid) if at_guards else pid, signal.SIGTERM)
            out, self.err = process.communicate(timeout=120 * hvdrun.patience())
        assert process.returncode == 0, self.err + out
        result = json.loads(next(line for line in out.splitlines() if '{"size"' in line).partition("] ")[2] or out)
        assert sorted(result["seen"]) == list(range(SAMPLES))
        self.restored = len(self.lines_of(folder, "restored"))
        self.steps = [(float(at), int(step), int(size)) for at, step, size in self.lines_of(folder, "steps")]

    @staticmethod
    def lines_of(folder: pathlib.Path, name: str) -> list[list[str]]:
        return fault_job.lines(folder / name)

    def lost(self) -> int:
        """How many steps were computed twice."""
        numbers = [step for _, step, _ in self.steps]
        return len(numbers) - len(set(numbers))

    def longest_step(self) -> float:
        """Seconds between two of them."""
        return max(after[0] - before[0] for before, after in zip(self.steps, self.steps[1:]))


@pytest.mark.timeout(200)
@pytest.mark.parametrize("at_guards", [True, False], ids=["guards", "ranks"])
@pytest.mark.parametrize("victims", [1, 2])
def test_it_leaves_at_the_end_of_the_step(tmp_path: pathlib.Path, victims: int, at_guards: bool) -> None:
    job = Preempted(tmp_path, victims, 20, at_guards)
    assert job.lost() == 0
    assert job.err.count("this rank leaves, as SIGTERM has asked") == victims, job.err
    # The others have begun their next step when they hear of it: that work is done again, in a new world.
    assert job.longest_step() < (2 * STEP + 0.5) * hvdrun.patience()


@pytest.mark.timeout(200)
@pytest.mark.parametrize("victims", [1, 2])
def test_a_grace_that_is_shorter_than_the_step(tmp_path: pathlib.Path, victims: int) -> None:
    job = Preempted(tmp_path, victims, 0.2, True)
    assert job.lost() == 0 and job.restored >= RANKS - victims  # the step was not complete, and is done again
    assert "it was told to end from outside, and had not after 0.2 s (--grace)" in job.err, job.err
    assert "this rank leaves" not in job.err
    assert job.longest_step() < 3 * STEP * hvdrun.patience()
