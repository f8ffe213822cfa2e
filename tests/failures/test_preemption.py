"""SIGTERM (preemption) in a long step: the rank leaves at its end; with a shorter grace period, the last commit counts."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys

import pytest

from campaigns import fault_job
from failures.test_elastic import COUNTER, SAMPLES, environment
from support import hvdrun
from support.forms import few

LEAVER = COUNTER.with_name("elastic_leaver.py")
STEP = 0.6  # seconds
RANKS = 4


class Preempted:
    """Runs a job of four ranks with long steps, and sends some ranks SIGTERM in the middle of a step. Keeps the job's
    result."""

    def __init__(self, folder: pathlib.Path, victims: list[int], grace: float, at_guards: bool) -> None:
        options = ["-np", str(RANKS), "--min-np", "1", "--max-np", str(RANKS), "--grace", str(grace)]
        env = environment(folder, ELASTIC_PAUSE="0", ELASTIC_WORK=str(STEP))
        with hvdrun.started(*options, "--python", sys.executable, str(COUNTER), env=env) as process:
            hvdrun.wait_until(lambda: len(self.lines_of(folder, "steps")) > 2 or process.poll() is not None, "steps", 60)
            pids = {int(fault_job.told(pid, "HVD_RANK")): pid for pid in fault_job.ranks_of(process.pid)}
            step = len(self.lines_of(folder, "steps")) + 2  # has not begun yet
            begun = lambda: [int(one) for one, _ in self.lines_of(folder, "begun")].count(step)  # noqa: E731
            hvdrun.wait_until(lambda: begun() == RANKS or process.poll() is not None, "all ranks in a step", 60)
            for pid in [pids[victim] for victim in victims]:
                os.kill(fault_job.parent(pid) if at_guards else pid, signal.SIGTERM)
            out, self.err = process.communicate(timeout=120 * hvdrun.patience())
        assert process.returncode == 0, self.err + out
        if grace > STEP:
            assert "ended properly after SIGTERM" in self.err, self.err
            assert "killed by signal 15" not in self.err and "is lost" not in self.err, self.err
        result = json.loads(next(line for line in out.splitlines() if '{"size"' in line).partition("] ")[2] or out)
        assert sorted(result["seen"]) == list(range(SAMPLES))
        self.restored = len(self.lines_of(folder, "restored"))
        self.steps = [(float(at), int(step), int(size)) for at, step, size in self.lines_of(folder, "steps")]
        self.begun = [(int(step), int(worker)) for step, worker in self.lines_of(folder, "begun")]

    @staticmethod
    def lines_of(folder: pathlib.Path, name: str) -> list[list[str]]:
        return fault_job.lines(folder / name)

    def lost(self) -> int:
        """The number of steps that were computed twice."""
        numbers = [step for _, step, _ in self.steps]
        return len(numbers) - len(set(numbers))

    def longest_step(self) -> float:
        """The most seconds between two steps."""
        return max(after[0] - before[0] for before, after in zip(self.steps, self.steps[1:]))


LEAVERS = [
    pytest.param(victims, where == "guards", id=f"{name}-{where}")
    for name, victims in {"rank 0": [0], "another": [2], "two": [0, 3]}.items()
    for where in ("guards", "ranks")
]


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("victims", "at_guards"), few(LEAVERS, ["two-guards"]))
def test_it_leaves_at_the_end_of_the_step(tmp_path: pathlib.Path, victims: list[int], at_guards: bool) -> None:
    job = Preempted(tmp_path, victims, 20, at_guards)
    assert job.lost() == 0
    assert job.err.count("this rank leaves, as SIGTERM has asked") == len(victims), job.err
    # The departure costs only the meeting: no rank restores its commit, and no rank begins a step that is repeated.
    assert job.restored == 0
    assert len(job.begun) == len(set(job.begun)), job.begun
    assert job.longest_step() < (STEP + 3) * hvdrun.patience()  # with slack for a busy machine


@pytest.mark.timeout(200)
@pytest.mark.parametrize("victims", few([[1, 2], [1]]), ids=["two", "one"])
def test_a_grace_that_is_shorter_than_the_step(tmp_path: pathlib.Path, victims: list[int]) -> None:
    job = Preempted(tmp_path, victims, 0.2, True)
    assert job.lost() == 0 and job.restored >= RANKS - len(victims)  # the step was incomplete, and is repeated
    assert "another program asked it to end, and it still ran after 0.2 s (--grace)" in job.err, job.err
    assert "this rank leaves" not in job.err
    assert job.longest_step() < (2 * STEP + 3) * hvdrun.patience()


def told_in_step_3(folder: pathlib.Path, how: str, *options: str) -> tuple[int, int]:
    """The last step that worker 1 has begun, and the number of restores of others."""
    env = environment(folder, ELASTIC_LEAVER=how)
    done = hvdrun.run("-np", "3", *options, "--python", sys.executable, str(LEAVER), env=env)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stderr.count("this rank leaves, as SIGTERM has asked") == 1, done.stderr
    begun = fault_job.lines(folder / "begun")
    restored = fault_job.lines(folder / "restored")
    if not restored:
        assert len({tuple(one) for one in begun}) == len(begun), begun
    assert {int(step) for step, _ in begun} == set(range(1, 13))
    return max(int(step) for step, worker in begun if worker == "1"), len(restored)


@pytest.mark.parametrize("least", ["1", "3"])
@pytest.mark.parametrize(("how", "last"), [("late", 4), ("alone", 3)])
def test_it_leaves_where_all_have_agreed(tmp_path: pathlib.Path, how: str, last: int, least: str) -> None:
    """A SIGTERM after the agreement counts at the next agreement.  If too few ranks are left, they wait for another rank."""
    assert told_in_step_3(tmp_path, how, "--min-np", least, "--max-np", "3") == (last, 0)
    # Only a new one needs the others' state.
    assert ([str(last), "0"] in fault_job.lines(tmp_path / "synced")) == (least == "3")


def test_a_script_that_does_not_agree(tmp_path: pathlib.Path) -> None:
    """The others notice in their next step, which they repeat."""
    last, restored = told_in_step_3(tmp_path, "own", "--min-np", "1", "--max-np", "3")
    assert last == 3 and restored >= 2
