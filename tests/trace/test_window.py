"""A timeline of some steps: --timeline-steps, and hvdrun timeline while the job runs."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.hvdrun import patience
from support.timelines import BUILD, ROOT, Job, environment, python_with, read_events
from support.trace_jobs import IMPORT_ERRORS

StartJob = Callable[..., Job]
AskPerfetto = Callable[..., list[list[list[Any]]]]
COLLECTIVES = ROOT / "tests/trace/collectives.py"
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(python_with("numpy") is None, reason="needs numpy in HVD_TEST_PYTHON"),
]
# A step is defined by calls of torch's optimizers.
PROGRAM = """
import sys, time
import numpy as np
import hvd.numpy as hvd
from hvd import _native
hvd.init()
for step in range(int(sys.argv[1])):
    hvd.allreduce(np.ones(100, np.float32), name="gradient")
    time.sleep(float(sys.argv[2]))
    _native.step_end()
hvd.shutdown()
"""


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def running(program: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """A job of two ranks that records nothing."""
    with subprocess.Popen(
        [str(BUILD / "launcher/hvdrun"), "-np", "2", sys.executable, str(program), "100000", "0.01"],
        env=environment(TMPDIR=str(tmp_path)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as job:
        yield job
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=30)


def command(*words: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BUILD / "launcher/hvdrun"), "timeline", *words],
        env=environment(TMPDIR=str(folder)),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
    )


def operations(path: pathlib.Path) -> list[dict[str, Any]]:
    return [event for event in read_events(path) if event["name"] == "ALLREDUCE" and event["ph"] == "X"]


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30 * patience()
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("ending", ["pftrace", "json"])
def test_some_steps(start_job: StartJob, program: pathlib.Path, ending: str) -> None:
    job = start_job(sys.executable, program, 12, 0, flags=["--timeline-steps", "4-6"], ending=ending)
    assert job.wait() == 0, job.output()
    found = operations(job.timeline)
    assert sorted(event["pid"] for event in found) == [0, 0, 0, 1, 1, 1], found
    if ending == "pftrace":
        bytes = job.timeline.read_bytes()
        assert all(f"step {n}".encode() in bytes for n in (4, 5, 6)), "each step is a slice"
        assert not any(f"step {n}".encode() in bytes for n in (2, 3, 7)), "and no other"


def test_the_page_shows_steps(start_job: StartJob, program: pathlib.Path, ask_perfetto: AskPerfetto) -> None:
    job = start_job(sys.executable, program, 12, 0, flags=["--timeline-steps", "4-6"], ending="pftrace")
    assert job.wait() == 0, job.output()
    steps = "select t.name, s.name from slice s join track t on s.track_id = t.id where s.name like 'step %' order by ts"
    counted = "select count(*) from counter c join track t on c.track_id = t.id where t.name = 'step time'"
    # Perfetto's page shows a track at the top level only if other tracks lie below it.
    tops = "select count(*) from track where name like 'rank _ steps' and id in (select parent_id from track)"
    errors, found, times, shown = ask_perfetto(job.timeline, IMPORT_ERRORS, steps, counted, tops)
    assert errors == [] and times == [[6]] and shown == [[2]]
    for rank in ("0", "1"):
        assert [name for track, name in found if track == f"rank {rank} steps"] == ["step 4", "step 5", "step 6"], found


def test_rounds_are_steps(start_job: StartJob) -> None:
    job = start_job(sys.executable, COLLECTIVES, 30, flags=["--timeline-steps", "10-12"], ending="pftrace")
    assert job.wait() == 0, job.output()
    assert len([e for e in operations(job.timeline) if e["pid"] == 0]) in range(12, 31), "six allreduces a round"


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--timeline-filename", "t.json", "--timeline-steps", "5-3"], '--timeline-steps: "5-3" are no steps'),
        (["--timeline-steps", "3-5"], "--timeline-steps: no timeline is recorded"),
    ],
)
def test_refused(flags: list[str], says: str, tmp_path: pathlib.Path) -> None:
    words = [str(BUILD / "launcher/hvdrun"), "-np", "1", *flags, "true"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_of_a_running_job(running: subprocess.Popen[str], tmp_path: pathlib.Path) -> None:
    told: list[subprocess.CompletedProcess[str]] = []
    job = str(running.pid)
    wait_for(lambda: (told.append(command(job, "start", "some.pftrace", folder=tmp_path)), told[-1].returncode == 0)[1])
    file = tmp_path / "some.pftrace"
    assert told[-1].stdout == f"each rank records from its next step on, into {file}\n"
    wait_for(lambda: {event["pid"] for event in operations(file)} == {0, 1})
    assert command(job, "stop", folder=tmp_path).stdout == f"each rank stops with its step; the timeline is {file}\n"

    def still() -> bool:
        before = file.stat().st_size
        time.sleep(1)
        return file.stat().st_size == before

    wait_for(still)
    first = len(operations(file))
    other = command(job, "start", "other.json", folder=tmp_path)
    assert other.returncode != 0 and f"this job's timeline is {file}: it goes on there" in other.stderr
    assert not (tmp_path / "other.json").exists()
    assert command(job, "start", folder=tmp_path).returncode == 0, "the job's own file"
    wait_for(lambda: len(operations(file)) > first)


def test_what_is_said_of_mistakes(running: subprocess.Popen[str], tmp_path: pathlib.Path) -> None:
    job = str(running.pid)
    wait_for(lambda: "records no timeline" in command(job, "stop", folder=tmp_path).stderr)
    assert "start or stop?" in command(folder=tmp_path).stderr
    assert "start or stop?" in command(job, folder=tmp_path).stderr
    assert "No such file" in command(job, "start", "none/t.json", folder=tmp_path).stderr
    assert "too many arguments" in command(job, "stop", "t.json", folder=tmp_path).stderr
    assert running.poll() is None
