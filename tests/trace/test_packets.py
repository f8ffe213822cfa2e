"""Perfetto's format: its display in the page, and readability after any end of the job."""

from __future__ import annotations

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
from support.timelines import BUILD, FAKE_RANK, Job, environment, python_with, read_events
from support.trace_jobs import IMPORT_ERRORS, SLICES, counts, ranks_alone, victim

pytestmark = pytest.mark.timeout(300)  # a browser's start on a busy core
STARTED_RANKS = "select t.name from slice s join track t on s.track_id = t.id where s.name = 'started' order by 1"
TRACKS = "select p.name, t.name from track t left join track p on t.parent_id = p.id"
COUNTERS = "from counter c join counter_track t on c.track_id = t.id where t.name ="
OWN = "select t.name, s.name, count(*) from slice s join track t on s.track_id = t.id where t.name like 'rank %' group by 1, 2"

StartJob = Callable[..., Job]
AskPerfetto = Callable[..., list[list[list[Any]]]]
RunTool = Callable[..., subprocess.CompletedProcess[str]]

LATE = """
import time, numpy
import hvd.numpy as hvd
hvd.init()
for step in range(20):
    time.sleep(0.05 * hvd.rank())
    handles = [hvd.allreduce_async(numpy.ones(1000, numpy.float32), name=f"layer.{i}.weight") for i in range(8)]
    for handle in handles:
        hvd.synchronize(handle)
hvd.shutdown()
"""


@measured
def test_the_first_screen_says_who_was_late(start_job: StartJob, ask_perfetto: AskPerfetto, tmp_path: pathlib.Path) -> None:
    python = python_with("numpy")
    if python is None:
        pytest.skip("needs numpy")
    (tmp_path / "late.py").write_text(LATE)
    job = start_job(python, tmp_path / "late.py", ending="pftrace")
    assert job.wait() == 0, job.output()
    queries = (
        IMPORT_ERRORS,
        OWN,
        TRACKS,
        "select int_value from metadata where name = 'tracing_started_ns'",
        "select min(ts) from slice where name = 'ALLREDUCE'",
        "select min(ts) from slice where name = 'launch'",
        f"select min(value), max(value) {COUNTERS} 'bytes under way'",
        f"select max(value) {COUNTERS} 'skew of arrival'",
        "select count(*) from flow",
    )
    errors, own, tracks, shown, first, launch, under_way, skew, flows = ask_perfetto(job.timeline, *queries)
    assert errors == []
    slices: dict[str, Counter[str]] = {"0": Counter(), "1": Counter()}
    for track, name, count in own:
        slices[track.split()[1]][name.partition(" (")[0]] += count
    for rank in ("0", "1"):
        assert slices[rank]["allreduce"] >= 20
        assert slices[rank]["launch"] == slices[rank]["interpreter, imports, init"] == 1
    assert slices["0"]["waited for rank 1"] >= 20
    assert slices["1"]["waited for rank 0"] <= 3
    assert [parent for parent, name in tracks if name == "allreduce.layer.3.weight  float32 [1000]"] == ["tensors", "tensors"]
    # The page begins at the first operation reported to hvdrun. An operation of another rank may have begun slightly earlier.
    assert 0 <= shown[0][0] - first[0][0] < 100e6 * patience(), "the page begins with the operations"
    assert launch[0][0] < shown[0][0]
    assert under_way == [[0, 32000]]
    assert skew[0][0] > 40e6
    assert flows[0][0] >= 20 * 8 * 3


@pytest.mark.parametrize("kind", few(["guard", "rank", "daemon", "hvdrun"]))
def test_opens_after_kill(kind: str, start_job: StartJob, ask_perfetto: AskPerfetto) -> None:
    job = start_job(FAKE_RANK, 20, 100000, 2000, ending="pftrace")
    job.wait_for_events()
    os.kill(victim(job, kind), signal.SIGKILL)
    assert job.wait(30) != 0
    errors, slices = ask_perfetto(job.timeline, IMPORT_ERRORS, SLICES)
    assert errors == []
    assert counts(slices)["ALLREDUCE"] > 0


def test_a_file_cut_anywhere_opens(start_job: StartJob, ask_perfetto: AskPerfetto, tmp_path: pathlib.Path) -> None:
    job = start_job(FAKE_RANK, 5, 20, 1000, ending="pftrace")
    assert job.wait() == 0, job.output()
    whole = job.timeline.read_bytes()
    for removed in (1, 7, 13, 300):
        cut = tmp_path / f"cut{removed}.pftrace"
        cut.write_bytes(whole[:-removed])
        assert len(read_events(cut)) > 100
    assert ask_perfetto(cut, IMPORT_ERRORS) == [[]]


@pytest.mark.ci
def test_an_event_takes_few_bytes(start_job: StartJob, ask_perfetto: AskPerfetto) -> None:
    job = start_job(FAKE_RANK, 20, 200, 1000, ending="pftrace")
    assert job.wait() == 0, job.output()
    # A slice is two events: begin and end.
    slices, others = ask_perfetto(
        job.timeline, "select count(*) from slice where dur > 0 or name like '%E%'", "select count(*) from counter"
    )
    events = 2 * slices[0][0] + others[0][0]
    assert events > 20000
    assert job.timeline.stat().st_size / events <= 30


def test_the_formats_say_the_same(start_job: StartJob, run_tool: RunTool, tmp_path: pathlib.Path) -> None:
    job = start_job(FAKE_RANK, 10, 20, 1000)
    assert job.wait() == 0, job.output()
    packets, back = tmp_path / "t.pftrace", tmp_path / "back.json"
    for source, target in ((job.timeline, packets), (packets, back)):
        done = run_tool("convert", source, "-o", target)
        assert (done.returncode, done.stderr) == (0, "")

    def slices(path: pathlib.Path) -> list[tuple[Any, ...]]:
        kept = ("NEGOTIATE_ALLREDUCE", "ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER", "SHM_ALLREDUCE")
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in read_events(path) if e["name"] == "thread_name"}
        return sorted(
            (e["pid"], names[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"], str(e.get("args")))
            for e in read_events(path)
            if e["name"] in kept and e["ph"] == "X"
        )

    assert len(slices(job.timeline)) == 2 * 10 * 20 * 4
    assert slices(back) == slices(job.timeline)
    assert run_tool("report", packets).stdout.splitlines()[-2:] == run_tool("report", job.timeline).stdout.splitlines()[-2:]


def test_merge_joins_what_ranks_wrote_alone(tmp_path: pathlib.Path, run_tool: RunTool, ask_perfetto: AskPerfetto) -> None:
    files = ranks_alone(tmp_path, "pftrace")
    assert ask_perfetto_alone(run_tool, files[1]) == 200
    merged = tmp_path / "merged.pftrace"
    done = run_tool("merge", *files, "-o", merged)
    assert (done.returncode, done.stderr) == (0, "")
    errors, slices = ask_perfetto(merged, IMPORT_ERRORS, SLICES)
    assert errors == []
    assert counts(slices)["ALLREDUCE"] == 400
    assert counts(slices)["allreduce"] == 40


def ask_perfetto_alone(run_tool: RunTool, path: pathlib.Path) -> int:
    """The operations in one rank's file."""
    return sum(event["name"] == "ALLREDUCE" for event in read_events(path))


@pytest.mark.ci
def test_a_full_disk_leaves_a_file_that_opens(tmp_path: pathlib.Path, ask_perfetto: AskPerfetto) -> None:
    """Bytes beyond a limit on the file's size cannot be written, as on a full disk."""
    path = tmp_path / "t.pftrace"
    hvdrun = f"{BUILD}/launcher/hvdrun -np 2 --timeline-filename {path} -- {FAKE_RANK} 20 500 500"
    done = subprocess.run(
        ["bash", "-c", f"trap '' XFSZ; ulimit -f 60; exec {hvdrun}"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert "did not fit; the others can be read" in done.stderr
    # The bytes may hold operations of one rank only. The page folds a rank without rows of its own, so it may show one.
    errors, ranks = ask_perfetto(path, IMPORT_ERRORS, STARTED_RANKS, shown=["(localhost)"])
    assert errors == []
    assert ranks == [["rank 0 (localhost)"], ["rank 1 (localhost)"]]
