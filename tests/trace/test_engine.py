"""The engine's own records: every operation, under hvdrun and under plain mpirun."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from support.forms import few
from support.timelines import Job, environment, python_with, read_events

PROGRAM = pathlib.Path(__file__).with_name("collectives.py")
pytestmark = pytest.mark.timeout(300)  # a browser's start on a busy core
IMPORT_ERRORS = "select name, value from stats where severity = 'error' and value > 0"
PARENTS = "select distinct p.name, s.name from slice s join slice p on s.parent_id = p.id where s.dur > 0"

# Events of one rank, each step.
EXPECTED = {
    "NEGOTIATE_ALLREDUCE": 6,
    "ALLREDUCE": 6,
    "SHM_ALLREDUCE": 6,
    "NEGOTIATE_BROADCAST": 1,
    "BROADCAST": 1,
    "SHM_BCAST": 1,
    "NEGOTIATE_ALLGATHER": 1,
    "ALLGATHER": 1,
    "SHM_ALLGATHER": 1,
    "NEGOTIATE_BARRIER": 1,
    "BARRIER": 1,
}

StartJob = Callable[..., Job]


@pytest.fixture(scope="module")
def python() -> str:
    found = python_with("numpy")
    if found is None:
        pytest.skip("no interpreter with numpy (HVD_TEST_PYTHON)")
    return found


def counts(events: list[dict[str, Any]], rank: int) -> Counter[str]:
    return Counter(event["name"] for event in events if event["pid"] == rank and event["ph"] == "X")


def tensors(events: list[dict[str, Any]]) -> dict[tuple[int, int], str]:
    """(rank, row): the tensor's name as the program gave it; the package adds the operation as prefix."""
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return {row: re.sub(r"^(allreduce|broadcast|allgather)\.", "", name) for row, name in named.items() if row[1] > 0}


def check(events: list[dict[str, Any]], steps: int) -> None:
    for rank in (0, 1):
        found = counts(events, rank)
        assert {name: found[name] for name in EXPECTED} == {name: n * steps for name, n in EXPECTED.items()}
        # Gathers and barriers, and the first broadcast: later ones have slots and do not queue.
        assert found["QUEUE"] == 2 * steps + 1
        assert found["MEMCPY_IN_FUSION_BUFFER"] == found["MEMCPY_OUT_FUSION_BUFFER"] >= steps
    assert {"small.4", 'a "large" one', "weights", "rows"} <= set(tensors(events).values())
    large = next(event for event in events if event["name"] == "ALLREDUCE" and "1000" in event["args"]["shape"])
    assert large["args"] == {"dtype": "float64", "shape": "[1000, 300]"}
    gathered = {event["args"]["shape"] for event in events if event["name"] == "ALLGATHER"}
    assert gathered == {"[1]", "[2]"}, "each rank's own rows"


def test_under_hvdrun(python: str, start_job: StartJob, ask_perfetto: Callable[..., Any]) -> None:
    job = start_job(python, PROGRAM, 4)
    assert job.wait() == 0, job.output()
    events = json.loads(job.timeline.read_text())
    check(events, 4)
    marks = Counter(event["name"] for event in events if event["ph"] == "i" and event["pid"] == 0)
    assert marks["0"] == marks["1"] == 36
    errors, parents = ask_perfetto(job.timeline, IMPORT_ERRORS, PARENTS)
    assert errors == []
    assert {parent for parent, _ in parents} <= {"ALLREDUCE", "BROADCAST", "ALLGATHER", "BARRIER"}


@pytest.mark.parametrize("kind", few(["rank", "hvdrun"]))
def test_opens_after_kill(kind: str, python: str, start_job: StartJob, ask_perfetto: Callable[..., Any]) -> None:
    job = start_job(python, PROGRAM, 100000, 0.005)
    job.wait_for_events()
    if kind == "rank":
        ranks = [pid for pid, _, name in job.processes() if name.startswith("python")]
        os.kill(ranks[-1], signal.SIGKILL)
    else:
        os.kill(job.process.pid, signal.SIGKILL)
    assert job.wait(30) != 0
    assert counts(read_events(job.timeline), 0)["SHM_ALLREDUCE"] > 0
    assert ask_perfetto(job.timeline, IMPORT_ERRORS) == [[]]


def test_under_plain_mpirun(
    python: str, tmp_path: pathlib.Path, run_tool: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2", python, str(PROGRAM)]
    env = environment(HOROVOD_TIMELINE=str(tmp_path / "t.json"), HOROVOD_TIMELINE_MARK_CYCLES="1")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    merged = tmp_path / "merged.json"
    done = run_tool("merge", tmp_path / "t.json", tmp_path / "t.rank1.json", "-o", merged)
    assert (done.returncode, done.stderr) == (0, "")
    events = json.loads(merged.read_text())
    check(events, 3)
    assert any(event["name"] == "CYCLE_START" for event in events)
    report = json.loads(run_tool("report", "--json", merged).stdout)
    assert report["operations_compared"] == 27
    assert report["unfinished"] == 0


def test_started_and_stopped_by_the_program(python: str, tmp_path: pathlib.Path) -> None:
    code = f"""
import hvd.numpy as hvd, numpy
hvd.init()
for part in ("before", "inside", "after"):
    if part == "inside": hvd.start_timeline({str(tmp_path / "t.json")!r})
    if part == "after": hvd.stop_timeline()
    hvd.allreduce(numpy.ones(3, numpy.float32), name=part)
"""
    env = environment(HOROVOD_TIMELINE="DYNAMIC")
    done = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "t.json").read_text())
    assert set(tensors(events).values()) == {"inside"}


def test_initialised_again(python: str, start_job: StartJob) -> None:
    code = """
import hvd.numpy as hvd, numpy
for name in ("first", "second"):
    hvd.init()
    hvd.allreduce(numpy.ones(3, numpy.float32), name=name)
    hvd.shutdown()
"""
    job = start_job(python, "-c", code)
    assert job.wait() == 0, job.output()
    events = json.loads(job.timeline.read_text())
    rows = tensors(events)
    seen = Counter(rows[event["pid"], event["tid"]] for event in events if event["name"] == "ALLREDUCE")
    assert seen == {"first": 2, "second": 2}


def test_a_rank_that_fails_leaves_what_it_recorded(python: str, start_job: StartJob) -> None:
    code = """
import hvd.numpy as hvd, numpy
hvd.init()
hvd.allreduce(numpy.ones(3, numpy.float32), name="last")
raise SystemExit(7 if hvd.rank() == 1 else 0)
"""
    job = start_job(python, "-c", code)
    assert job.wait() == 7, job.output()
    events = json.loads(job.timeline.read_text())
    assert counts(events, 1)["ALLREDUCE"] == 1
    assert any(event["ph"] == "i" and event["pid"] == 1 and "7" in event["name"] for event in events), "how it ended"


def test_what_hangs_is_seen(python: str, start_job: StartJob) -> None:
    code = """
import hvd.numpy as hvd, numpy, time
hvd.init()
if hvd.rank() == 0: hvd.allreduce(numpy.ones(3, numpy.float32), name="alone")
time.sleep(30)
"""
    job = start_job(python, "-c", code)
    job.wait_for(lambda events: any(event["ph"] == "B" for event in events))
    begun = next(event for event in read_events(job.timeline) if event["ph"] == "B")
    assert (begun["name"], begun["pid"]) == ("NEGOTIATE_ALLREDUCE", 0)
