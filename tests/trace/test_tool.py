"""hvd-timeline: numbers, and messages about other files."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
from collections.abc import Callable

import pytest

RunTool = Callable[..., "subprocess.CompletedProcess[str]"]

EVENTS = [
    '{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0 (a)"}}',
    '{"ph":"M","name":"process_name","pid":1,"args":{"name":"rank 1 (b)"}}',
    '{"ph":"X","name":"NEGOTIATE_ALLREDUCE","ts":10.000,"dur":20.000,"pid":0,"tid":1}',
    '{"ph":"i","s":"t","name":"0","ts":10.000,"pid":0,"tid":1}',
    '{"ph":"i","s":"t","name":"1","ts":25.000,"pid":0,"tid":1}',
    '{"ph":"X","name":"ALLREDUCE","ts":30.000,"dur":5.000,"pid":0,"tid":1,"args":{"dtype":"float32","shape":"[2, 3]"}}',
    '{"ph":"X","name":"ALLREDUCE","ts":30.000,"dur":7.000,"pid":1,"tid":1,"args":{"dtype":"float32","shape":"[2, 3]"}}',
    '{"ph":"B","name":"NEGOTIATE_BROADCAST","ts":50.000,"pid":0,"tid":2}',
]


@pytest.fixture
def trace(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "t.json"
    path.write_text("[\n" + ",\n".join(EVENTS) + "\n]\n")
    return path


def test_report_counts(trace: pathlib.Path, run_tool: RunTool) -> None:
    done = run_tool("report", "--json", trace)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    kinds = {kind["name"]: kind for kind in report["events"]}
    assert kinds["ALLREDUCE"] == {
        "name": "ALLREDUCE", "count": 2, "total_us": 12.0, "mean_us": 6.0, "p99_us": 7.0, "max_us": 7.0, "bytes": 48,
    }  # fmt: skip
    assert (report["ranks"], report["unfinished"], report["cut_off"]) == (2, 1, False)
    assert report["arrivals"] == [{"rank": 1, "last": 1, "others_waited_us": 15.0}]
    text = run_tool("report", trace).stdout
    assert "1 operations began and never ended" in text
    assert "others waited" in text


def test_report_counts_what_agreement_has_found(trace: pathlib.Path, run_tool: RunTool) -> None:
    assert json.loads(run_tool("report", "--json", trace).stdout)["findings"] == {}
    event = '{"ph":"i","s":"p","name":"agreement: %s","ts":60.000,"pid":1,"tid":0,"args":{"tensor":"a","step":3,"ranks":[1]}}'
    events = [*EVENTS, event % "result differs", event % "not finite", event % "result differs"]
    trace.write_text("[\n" + ",\n".join(events) + "\n]\n")
    done = run_tool("report", "--json", trace)
    assert json.loads(done.stdout)["findings"] == {"not finite": 1, "result differs": 2}, done.stderr
    assert "agreement: result differs: 2\n" in run_tool("report", trace).stdout


@pytest.mark.parametrize("cut", [3, 30, 100, 200, 400])
def test_a_cut_file_is_read(cut: int, trace: pathlib.Path, run_tool: RunTool) -> None:
    trace.write_bytes(trace.read_bytes()[:-cut])
    done = run_tool("report", trace)
    assert done.returncode == 0, done.stderr
    assert "has no end: its job still records, or its writer was killed" in done.stdout


def test_a_named_pipe_is_read(trace: pathlib.Path, tmp_path: pathlib.Path, run_tool: RunTool) -> None:
    """The tool opens the pipe once: closing and reopening it would end the writer by SIGPIPE."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(trace.read_bytes()))
    writer.start()
    done = run_tool("report", pipe)
    writer.join(10)
    assert done.returncode == 0, done.stderr
    assert "ALLREDUCE" in done.stdout


@pytest.mark.parametrize("ending", ["json", "pftrace"])
def test_a_file_that_grows_faster_than_it_is_read(
    ending: str, trace: pathlib.Path, tmp_path: pathlib.Path, run_tool: RunTool
) -> None:
    growing = tmp_path / f"growing.{ending}"
    assert run_tool("convert", trace, "-o", growing).returncode == 0
    piece = growing.read_bytes()[2:] if ending == "json" else growing.read_bytes()
    piece = piece.replace(b"]\n", b"{},\n")
    done = threading.Event()

    def write() -> None:
        with growing.open("ab") as file:
            while not done.is_set() and file.tell() < 1 << 30:
                file.write(piece * 1000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert run_tool("report", growing).returncode == 0  # within its time
    finally:
        done.set()
        writer.join()
        growing.unlink()


def test_horovods_own_format(tmp_path: pathlib.Path, run_tool: RunTool) -> None:
    path = tmp_path / "horovod.json"
    path.write_text(
        "[\n"
        '{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "t"}},\n'
        '{"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},\n'
        '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 5, "pid": 1},\n'
        '{"ph": "X", "name": "0", "ts": 6, "pid": 1, "dur": 0},\n'
        '{"ph": "X", "name": "1", "ts": 8, "pid": 1, "dur": 0},\n'
        '{"ph": "E", "ts": 9, "pid": 1},\n'
        '{"ph": "B", "name": "ALLREDUCE", "ts": 10, "pid": 1},\n'
        '{"ph": "E", "ts": 14, "pid": 1, "args": {"dtype": "float32", "shape": "[8]"}},\n'
    )
    report = json.loads(run_tool("report", "--json", path).stdout)
    kinds = {kind["name"]: (kind["count"], kind["total_us"], kind["bytes"]) for kind in report["events"]}
    assert kinds == {"NEGOTIATE_ALLREDUCE": (1, 4.0, 0), "ALLREDUCE": (1, 4.0, 32)}
    assert report["arrivals"] == [{"rank": 1, "last": 1, "others_waited_us": 2.0}]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("", "is empty"),
        ("hello\n", "does not begin with ["),
        ('{"traceEvents":[]}', "does not begin with ["),
        ("[\nnonsense,\n{},\n{}\n]\n", "t.json:2: is no event"),
    ],
)
def test_what_is_no_timeline(content: str | None, says: str, tmp_path: pathlib.Path, run_tool: RunTool) -> None:
    path = tmp_path / "t.json"
    if content is not None:
        path.write_text(content)
    for arguments in (("report", path), ("merge", path, "-o", tmp_path / "out.json")):
        done = run_tool(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("hvd-timeline: ")
        assert done.stderr.count("\n") == 1
        if arguments[0] == "report":
            assert says in done.stderr


def test_merge_refuses_a_file_of_all_ranks(trace: pathlib.Path, run_tool: RunTool) -> None:
    done = run_tool("merge", trace, "-o", trace.with_name("out.json"))
    assert done.returncode == 2
    assert "written by a rank alone" in done.stderr


def test_diff_names_what_takes_longer_and_who_comes_later(trace: pathlib.Path, run_tool: RunTool) -> None:
    slow = trace.with_name("slow.json")
    text = trace.read_text().replace('"dur":5.000', '"dur":25.000').replace('"ts":25.000', '"ts":29.500')
    slow.write_text(text.replace("NEGOTIATE_BROADCAST", "NEGOTIATE_ALLGATHER"))
    done = run_tool("diff", trace, slow)
    assert done.returncode == 0, done.stderr
    assert "ALLREDUCE takes +167 % in the second, 16.0 instead of 6.0 us: 0.0 ms more a rank" in done.stdout
    assert "rank 1 comes later: the others wait 19.5 us an operation for it, before 15.0" in done.stdout
    diff = json.loads(run_tool("diff", "--json", trace, slow).stdout)
    assert diff["events"][0] == {"name": "ALLREDUCE", "count": [2, 2], "mean_us": [6.0, 16.0], "added_us": 20.0}
    assert diff["arrivals"] == [{"rank": 1, "last_share": [1.0, 1.0], "others_waited_us": [15.0, 19.5]}]
    assert "nothing takes longer in the second by a twentieth" in run_tool("diff", trace, trace).stdout
    assert "nothing takes longer" in run_tool("diff", slow, trace).stdout, "it got faster"


def test_diff_of_what_is_no_timeline(trace: pathlib.Path, tmp_path: pathlib.Path, run_tool: RunTool) -> None:
    done = run_tool("diff", trace, tmp_path / "none.json")
    assert done.returncode == 2 and "No such file" in done.stderr
    assert run_tool("diff", trace).returncode == 2


def test_help_and_usage(run_tool: RunTool) -> None:
    for arguments in (("--help",), ("merge", "-h")):
        done = run_tool(*arguments)
        assert done.returncode == 0 and "hvd-timeline diff [--json] FIRST SECOND" in done.stdout
    assert run_tool("--version").stdout.startswith("hvd-timeline ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "a command is missing"),
        (("meld", "a"), 'there is no command "meld"'),
        (("report",), "report: the name of a file is missing (usage: hvd-timeline report [--json] FILE)"),
        (("report", ""), "report: the name of a file is empty"),
        (("report", "a", "b"), 'report: "b" is one argument too many'),
        (("report", "--xml", "a"), "there is no such option: --xml"),
        (("report", "-xj", "a"), "there is no such option: -x"),
        (("report", "--json=1", "a"), "there is no such option: --json=1"),
        (("report", "a", "-o", "b"), "report: takes no --output"),
        (("merge", "a"), "merge: --output needs the name of the file to write"),
        (("merge", "a", "-o", ""), "merge: --output needs the name of the file to write"),
        (("merge", "a", "-o"), "-o needs a value"),
        (("desync", "--json", "a"), "desync: takes no --json"),
    ],
)
def test_wrong_command_lines(arguments: tuple[str, ...], says: str, run_tool: RunTool) -> None:
    done = run_tool(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("hvd-timeline: " + says) and done.stderr.count("\n") == 1
