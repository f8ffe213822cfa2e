"""A job's only timeline: its content, and readability after any end of the job."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from support.forms import few, measured
from support.hvdrun import patience
from support.timelines import BUILD, FAKE_RANK, Job, environment, read_events
from support.trace_jobs import IMPORT_ERRORS, SLICES, counts, ranks_alone, victim

pytestmark = pytest.mark.timeout(300)  # a browser's start on a busy core
PARENTS = "select distinct p.name, s.name from slice s join slice p on s.parent_id = p.id where s.dur > 0"
PROCESSES = "select pid, name from process where name like 'rank %' order by pid"

StartJob = Callable[..., Job]
AskPerfetto = Callable[..., list[list[list[Any]]]]


def names_of(job: Job, rank: int) -> Counter[str]:
    return Counter(event["name"] for event in read_events(job.timeline) if event["pid"] == rank and event["ph"] in "Xi")


def test_both_ranks_in_one_file(start_job: StartJob, ask_perfetto: AskPerfetto) -> None:
    job = start_job(FAKE_RANK, 20, 30, 1000, flags=["--timeline-mark-cycles"])
    assert job.wait() == 0, job.output()
    events = json.loads(job.timeline.read_text())
    for rank in (0, 1):
        names = names_of(job, rank)
        for name in ("NEGOTIATE_ALLREDUCE", "ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER", "SHM_ALLREDUCE"):
            assert names[name] == 600, (rank, name, names)
        assert names["CYCLE_START"] == 30
    assert names_of(job, 0)["0"] == 600, "each rank's marks stand in the first rank's rows"
    assert names_of(job, 0)["1"] == 600
    operation = next(event for event in events if event["name"] == "ALLREDUCE")
    assert operation["args"] == {"dtype": "float32", "shape": "[100]"}
    clocks = [event for event in events if event["name"] == "hvd_clock"]
    assert {event["pid"] for event in clocks} == {0, 1}
    assert all(event["args"] == {"offset_ns": 0, "uncertainty_ns": 0} for event in clocks), "one host: one clock"

    errors, slices, parents, processes = ask_perfetto(job.timeline, IMPORT_ERRORS, SLICES, PARENTS, PROCESSES)
    assert errors == []
    assert counts(slices)["SHM_ALLREDUCE"] == 1200
    assert ["ALLREDUCE", "SHM_ALLREDUCE"] in parents
    assert ["ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER"] in parents
    assert {parent for parent, _ in parents} == {"ALLREDUCE"}, "operations of one tensor do not overlap"
    assert [name.startswith(f"rank {pid} (") for pid, name in processes] == [True, True]


@pytest.mark.parametrize("kind", few(["hvdrun", "rank", "guard", "daemon"]))
def test_opens_after_kill(kind: str, start_job: StartJob, ask_perfetto: AskPerfetto) -> None:
    job = start_job(FAKE_RANK, 20, 100000, 2000)
    job.wait_for_events()
    os.kill(victim(job, kind), signal.SIGKILL)
    assert job.wait(30) != 0
    events = read_events(job.timeline)
    for rank in (0, 1):
        assert any(event["name"] == "SHM_ALLREDUCE" and event["pid"] == rank for event in events)
    if kind != "hvdrun":
        assert json.loads(job.timeline.read_text())[-1]["name"] == "hvd_end", "hvdrun lives: the file is closed"
    errors, slices = ask_perfetto(job.timeline, IMPORT_ERRORS, SLICES)
    assert errors == []
    assert counts(slices)["ALLREDUCE"] > 0


@pytest.mark.parametrize("kind", few(["hvdrun", ""]), ids=["hvdrun killed", "whole"])
def test_compressed(
    kind: str, start_job: StartJob, ask_perfetto: AskPerfetto, run_tool: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    job = start_job(FAKE_RANK, 20, 100000 if kind else 300, 2000, ending="json.gz")
    if kind:
        job.wait_for_events()
        os.kill(victim(job, kind), signal.SIGKILL)
    assert (job.wait(60) != 0) == bool(kind), job.output()
    unpacked = subprocess.run(["gzip", "-dc", str(job.timeline)], capture_output=True)
    assert unpacked.returncode == 0, "gzip finds it whole, killed or not"
    assert len(unpacked.stdout) > 3 * job.timeline.stat().st_size
    if not kind:
        assert json.loads(unpacked.stdout)[-1]["name"] == "hvd_end"
    assert any(event["name"] == "ALLREDUCE" for event in read_events(job.timeline))
    errors, slices = ask_perfetto(job.timeline, IMPORT_ERRORS, SLICES)
    assert errors == []
    assert counts(slices)["ALLREDUCE"] > 0
    told = run_tool("report", "--json", job.timeline)
    assert told.returncode == 0, told.stderr
    again = job.timeline.with_name("again.json.gz")
    converted = run_tool("convert", "-o", again, job.timeline)
    assert converted.returncode == 0, converted.stderr
    assert subprocess.run(["gzip", "-t", str(again)]).returncode == 0


@measured
def test_what_a_killed_rank_had_sent_is_there(start_job: StartJob) -> None:
    job = start_job(FAKE_RANK, 5, 100000, 1000)
    job.wait_for_events()

    def started(rank: int = 1) -> list[float]:
        """Returns the time at which a rank began its operations, in microseconds since the job's start."""
        return [event["ts"] for event in read_events(job.timeline) if event["name"] == "ALLREDUCE" and event["pid"] == rank]

    seen = started()
    job.wait_for(lambda _: len(started()) > len(seen) + 1000)
    seen = started()
    os.kill(victim(job, "rank"), signal.SIGKILL)
    assert job.wait(60) != 0
    assert set(seen) <= set(started())
    lost = max(started(0)) - max(started())  # the other rank continues until it is stopped
    assert lost < 1e6 * patience(), "at most what the rank gathered in a tenth of a second is lost"


@pytest.mark.ci
def test_the_size_is_limited(start_job: StartJob, ask_perfetto: AskPerfetto) -> None:
    # A frame of one rank makes a megabyte of text: half the limit must hold some of both ranks.
    job = start_job(FAKE_RANK, 100, 200, 1000, flags=["--timeline-max-mb", "10"])
    assert job.wait() == 0
    older = job.timeline.with_suffix(".older.json")
    assert job.timeline.stat().st_size + older.stat().st_size <= 10 << 20
    assert "--timeline-max-mb" in job.output()
    assert json.loads(older.read_text())[-1]["args"]["text"] == f"continued in {job.timeline}"
    assert json.loads(job.timeline.read_text())[-1]["args"]["text"] == "end"
    assert ask_perfetto(older, IMPORT_ERRORS) == [[]]


@pytest.mark.parametrize(
    ("path", "env", "says"),
    [
        ("/nonexistent/t.json", {}, "/nonexistent/t.json"),
        ("/dev/full", {}, "No space left"),
        ("t.json", {"HVD_TIMELINE_MAX_MB": "lots"}, "HVD_TIMELINE_MAX_MB"),
    ],
)
def test_refused_before_anything_starts(path: str, env: dict[str, str], says: str, tmp_path: pathlib.Path) -> None:
    argv = [str(BUILD / "launcher/hvdrun"), "-np", "2", "--timeline-filename", path, "--", "touch", "started"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, cwd=tmp_path, env=environment(**env))
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.ci
def test_merge_joins_what_ranks_wrote_alone(
    tmp_path: pathlib.Path, run_tool: Callable[..., subprocess.CompletedProcess[str]], ask_perfetto: AskPerfetto
) -> None:
    files = ranks_alone(tmp_path, "json")
    merged = tmp_path / "merged.json"
    done = run_tool("merge", *files, "-o", merged)
    assert (done.returncode, done.stderr) == (0, "")
    events = json.loads(merged.read_text())
    first = {event["pid"]: event["ts"] for event in reversed(events) if event["name"] == "ALLREDUCE"}
    assert first[1] > first[0] > 0, "rank 1 ran after rank 0"
    rows = {(event["pid"], event["args"]["name"]): event["tid"] for event in events if event["name"] == "thread_name"}
    assert rows[0, "layer.3.weight"] == rows[1, "layer.3.weight"]
    errors, slices = ask_perfetto(merged, IMPORT_ERRORS, SLICES)
    assert errors == []
    assert counts(slices)["ALLREDUCE"] == 400
    assert counts(slices)["1"] == 200
