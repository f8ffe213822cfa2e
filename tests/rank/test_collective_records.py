"""The embedded Python archive of a rank reads torch's collectives. The source is torch's flight recorder, in several versions,
or the calling frames if torch has no recorder."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import pickle
import queue
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

START = pathlib.Path(__file__).resolve().parents[2] / "src/rank/python/start"


@pytest.fixture(scope="module", autouse=True)
def archive() -> Iterator[None]:
    """Lets the archive's modules import each other."""
    sys.path.insert(0, str(START))
    yield
    sys.path.remove(str(START))


def module(name: str) -> Any:
    specification = importlib.util.spec_from_file_location(name, START / f"{name}.py")
    assert specification and specification.loader
    found = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """distributed_c10d with its calls recorded, in a world of one."""
    dist = pytest.importorskip("torch.distributed")
    c10d = dist.distributed_c10d
    names = module("hvdrank_calls").NAMES
    kept = {name: getattr(c10d, name) for name in names if hasattr(c10d, name)}
    calls = module("hvdrank_calls").Calls(c10d)
    store = f"file://{tmp_path_factory.mktemp('store')}/store"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield c10d, calls
    dist.destroy_process_group()
    for name, original in kept.items():
        setattr(c10d, name, original)


def test_calls_are_recorded_where_torch_records_none(world: tuple[Any, Any]) -> None:
    import torch

    c10d, calls = world
    calls.forget()
    c10d.all_reduce(torch.ones(2, 3))
    c10d.broadcast(tensor=torch.ones(4, dtype=torch.int64), src=0)
    work = c10d.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        c10d.reduce(torch.ones(1), 7)
    c10d.barrier()
    entries = calls.entries(True)
    told = [(e["collective_seq_id"], e["profiling_name"], e["input_sizes"], e["retired"]) for e in entries]
    assert told[:3] == [
        (1, "call:all_reduce", [(2, 3)], True),
        (2, "call:broadcast", [(4,)], True),
        (3, "call:all_reduce", [(1,)], True),
    ]
    assert [e["profiling_name"] for e in entries[3:]] == ["call:reduce", "call:barrier"]
    assert all(e["retired"] for e in entries) and not calls.entries(False)
    assert entries[0]["frames"][0]["filename"] == __file__ and entries[1]["input_dtypes"] == ["int64"]
    assert c10d.all_reduce.__name__ == "all_reduce" and "tensor" in c10d.all_reduce.__doc__


def test_a_record_keeps_neither_work_nor_tensor(world: tuple[Any, Any]) -> None:
    calls = module("hvdrank_calls")

    class Work:
        done = False

        def is_completed(self) -> bool:
            return self.done

    work = Work()
    end = calls.reference(work)
    assert not calls.has_ended(end) and not calls.has_ended(None)
    work.done = True
    assert calls.has_ended(end)
    work.done = False
    del work
    assert calls.has_ended(end)


# Entries in the form in which NCCL's flight recorder of these versions returns them (torch/csrc/distributed/c10d: TraceUtils.h,
# NCCLUtils.hpp, FlightRecorder.hpp). No NCCL runs here.
ENTRY = {"profiling_name": "nccl:all_reduce", "time_created_ns": 1, "input_sizes": [[8]], "state": "scheduled", "frames": []}


def entry_of(kind: str, number: int, message: int = 0, retired: bool = False) -> dict[str, Any]:
    """In the form of 2.4.  message: its number, of a message."""
    numbers = {"collective_seq_id": number, "p2p_seq_id": message, "is_p2p": message > 0}
    return dict(ENTRY, profiling_name=f"nccl:{kind}", process_group=("0", "default_pg"), retired=retired, **numbers)


FORMS: dict[str, Any] = {
    "2.2": [dict(ENTRY, pg_id=0, seq_id=4)],
    "2.3": {"version": "1.5", "entries": [dict(ENTRY, pg_id=0, seq_id=4, retired=False)]},
    "2.4": {
        "version": "2.2",
        "entries": [
            entry_of("all_reduce", 4),
            entry_of("all_reduce_barrier", 3, retired=True),
            entry_of("recv 1<-0", 4, message=2),
        ],
    },
}


def dump_of(version: str) -> Any:
    """The function of this version; older ones take fewer parameters."""
    text = pickle.dumps(FORMS[version])
    if version == "2.2":
        return lambda: text
    if version == "2.3":
        return lambda: text
    return lambda includeCollectives=True, includeStackTraces=True, onlyActive=False: text


def answer_of(dump: Any, version: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The watcher's whole answer with a recorder of NCCL."""
    group: Any = types.SimpleNamespace(group_desc="default_pg")
    backend = types.SimpleNamespace(_dump_nccl_trace=dump)
    torch = types.SimpleNamespace(__version__=version, _C=types.SimpleNamespace(_distributed_c10d=backend))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    watcher = module("hvdrank_collectives").Watcher(
        types.SimpleNamespace(
            _world=types.SimpleNamespace(
                pg_group_ranks={id(group): {0: 0, 1: 1}}, pg_names={id(group): "0"}, pg_map={id(group): ("nccl", None)}
            ),
            get_rank=lambda: 1,
        ),
        "",
    )
    answer: dict[str, Any] = watcher.answer(True)
    return answer


def test_an_old_open_collective_is_told_behind_many_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the rank waits in one, while the main thread makes many more."""
    entries = [
        dict(entry_of("all_reduce", number, retired=number != 3), time_created_ns=number * 1_000_000)
        for number in range(1, 1000)
    ]
    answer = answer_of(lambda *_: pickle.dumps({"version": "2.4", "entries": entries}), "2.4", monkeypatch)
    assert "trouble" not in answer
    assert [row[1] for row in answer["records"] if not row[4] & 1] == [3]
    assert [answer["records"][0][1], answer["records"][-1][1], len(answer["records"])] == [3, 999, 193]


@pytest.mark.parametrize(("version", "records"), [("2.2", []), ("2.3", []), ("2.4", [(3, True), (4, False), (2, False)])])
def test_nccl_records_of_each_form(version: str, records: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.2 and 2.3 do not name the group. The answer leaves out their records and has all others."""
    answer = answer_of(dump_of(version), version, monkeypatch)
    assert "trouble" not in answer
    assert answer["rank"] == 1 and answer["groups"] == [["0", "default", [0, 1]]]
    assert sorted((row[1], bool(row[4] & 1)) for row in answer["records"]) == sorted(records)
    if records:
        assert [row[2] for row in answer["records"] if row[4] & 2] == ["recv 1<-0"]
        assert [row[2:4] for row in answer["records"] if row[1] == 3] == [["barrier", ""]]


@pytest.mark.parametrize(
    ("function", "given", "root"),
    [
        ("broadcast", {"group": None, "src": 2}, ("broadcast", "0", 2)),
        ("broadcast", {"group": "pair", "src": None, "group_src": 1}, ("broadcast", "1", 3)),
        ("gather", {"group": None, "dst": None, "group_dst": None}, ("gather", "0", 0)),
        ("reduce", {"group": "pair", "dst": 1}, ("reduce", "1", 1)),  # torch 2.5 and earlier have no group_dst
        ("all_reduce", {"group": None}, None),
    ],
)
def test_the_root_is_read_from_the_call(function: str, given: dict[str, Any], root: Any) -> None:
    collectives = module("hvdrank_collectives")
    c10d = types.SimpleNamespace(
        group=types.SimpleNamespace(WORLD="world"),
        get_global_rank=lambda group, rank: {"pair": [1, 3]}[group][rank],
        _world=types.SimpleNamespace(pg_names={"world": "0", "pair": "1"}),
    )
    frames = [
        ("/site-packages/torch/distributed/c10d_logger.py", 83, "wrapper", None),
        ("/site-packages/" + collectives.C10D, 3000, function, types.SimpleNamespace(f_locals=given)),
        ("/home/me/train.py", 8, "main", None),
    ]
    watcher = collectives.Watcher(c10d, "")
    assert watcher.root_of(frames) == root
    assert watcher.root_of(frames[2:]) is None


@pytest.mark.parametrize(
    ("file", "seen"),
    [
        ("/work/build/src/python/hvd/torch/_c10d/group_work.py", True),  # a build folder: hvd is not installed
        ("/v/lib/python3.11/site-packages/hvd/torch/_c10d/group_work.py", True),
        ("/home/me/horovod/examples/train.py", False),  # the user's, in spite of the folder's name
    ],
)
def test_a_call_is_seen_below_the_frames_of_a_library(file: str, seen: bool) -> None:
    collectives = module("hvdrank_collectives")
    watcher = collectives.Watcher(types.SimpleNamespace(), "")
    found = []
    inner: dict[str, Any] = {"look": lambda: found.append(watcher.answer(False)["call"])}
    exec(compile("def wait():\n    look()", file, "exec"), inner)
    outer: dict[str, Any] = {"wait": inner["wait"]}
    exec(compile("def barrier():\n    wait()", "/site-packages/" + collectives.C10D, "exec"), outer)
    # The frames of this test's own lambda and of answer() are not a library's: begin below them.
    original = collectives.all_frames
    collectives.all_frames = lambda frame: [f for f in original(frame) if not f[0].endswith(("records.py", "collectives.py"))]
    outer["barrier"]()
    assert (found[0] is not None and found[0]["name"] == "barrier") is seen


def test_a_collective_of_a_thread_has_the_line_of_the_thread() -> None:
    """The record has no line, and the main thread stands at a lock."""
    collectives = module("hvdrank_collectives")
    go_on, called = threading.Event(), threading.Event()
    names: dict[str, Any] = {"wait": lambda: (called.set(), go_on.wait(60))}
    exec(compile("def all_reduce():\n    wait()", "/site-packages/" + collectives.C10D, "exec"), names)
    names["wait"].__code__ = names["wait"].__code__.replace(co_filename="/site-packages/torch/x.py")
    exec(compile("def average():\n    all_reduce()", "/home/me/metrics.py", "exec"), names)
    thread = threading.Thread(target=names["average"])
    thread.start()
    called.wait(60)
    main = [("/home/me/train.py", 8, "main", None)]
    found = collectives.place_of([frame[:3] for frame in collectives.caller_frames(main)])
    go_on.set()
    thread.join()
    assert found == "metrics.py:2 (average)"
    assert collectives.caller_frames(main) is main  # no thread is in a collective


def test_calls_of_one_line_are_told_apart() -> None:
    """Frames of successive calls often have the same address. Several short calls must not count as one long call."""
    collectives = module("hvdrank_collectives")
    watcher = collectives.Watcher(types.SimpleNamespace(), "")
    names: dict[str, Any] = {}
    exec(compile("def all_reduce(end):\n    end.get(timeout=60)", "/site-packages/" + collectives.C10D, "exec"), names)
    begun: queue.SimpleQueue[int] = queue.SimpleQueue()
    end: queue.SimpleQueue[int] = queue.SimpleQueue()
    first = []

    def look() -> None:
        for _ in range(5):
            begun.get(timeout=60)
            seconds: list[float] = []
            while len(seconds) < 2:
                if call := watcher.present_call()[0]:
                    seconds.append(call["seconds"])
            first.append(seconds[0])
            assert seconds[1] > 0
            end.put(1)

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(5):
        begun.put(number)
        names["all_reduce"](end)
    thread.join(60)
    assert first == [0] * 5


def test_an_open_message_counts_while_the_main_thread_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's recv() returns at once.  The record has ranks of the group, here 2 and 5 of the world."""
    collectives = module("hvdrank_collectives")
    watcher = collectives.Watcher(types.SimpleNamespace(), "")
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    entries = [{"profiling_name": "nccl:recv 1<-0", "process_group": ("3", "pair")}]
    members = {"3": {2: 0, 5: 1}}

    def message() -> Any:
        return watcher.message_of(entries, members, frames)

    frame: Any = types.SimpleNamespace(f_lasti=8, f_trace_lines=True)
    frames = [("/home/me/train.py", 8, "main", frame)]
    assert message() is None
    now[0] += 1.9
    assert message() is None
    now[0] += 0.2
    assert message() == {"name": "recv", "peer": 2, "place": "train.py:8 (main)", "seconds": pytest.approx(2.1)}
    assert watcher.message_of([], members, frames) is None and watcher.message_of(entries, members, []) is None
    frame.f_lasti = 10  # it goes on: the program has posted the message in advance
    assert message() is None


def seconds_told(records: Any, *opened: tuple[int, int, float], gloo: bool = False) -> list[float]:
    """After an answer with these open collectives: group, number, seconds since they were enqueued."""
    rows = [[group, number, "all_reduce", "", 4 * gloo, seconds, "", -1] for group, number, seconds in opened]
    records.count_from_progress(rows, ["0", "1"])
    return [row[5] for row in rows]


def test_collectives_that_are_enqueued_in_advance_wait_from_the_last_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is ahead of the others by many steps waits a short time for each collective."""
    records = module("hvdrank_records").Records()
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert seconds_told(records, (0, 7, 4.0)) == [4]  # one alone: since it was enqueued
    now[0] += 2
    assert seconds_told(records, (0, 7, 6.0), (0, 8, 1.0)) == [6, 1]
    now[0] += 2
    assert seconds_told(records, (0, 8, 3.0), (0, 9, 3.0)) == [0, 0]  # 7 has ended
    now[0] += 2
    assert seconds_told(records, (0, 8, 5.0), (0, 9, 5.0)) == [2, 2]
    assert seconds_told(records, (0, 8, 5.0), (0, 9, 5.0), (1, 3, 9.0)) == [2, 2, 9]
    now[0] += 2
    assert seconds_told(records, (0, 9, 7.0), (1, 3, 11.0)) == [0, 0]  # on GPUs one group may wait for another one
    now[0] += 2
    assert seconds_told(records, (1, 3, 13.0)) == [0]
    now[0] += 2
    assert seconds_told(records, (1, 3, 15.0)) == [2]
    assert seconds_told(records) == []
    now[0] += 90
    assert seconds_told(records, (1, 20, 7.0), (1, 21, 6.0)) == [0, 0]  # the last answer is old


def test_each_group_of_gloo_has_its_own_progress() -> None:
    records = module("hvdrank_records").Records()
    assert seconds_told(records, (0, 1, 4.0), (1, 3, 9.0), gloo=True) == [4, 9]
    first, second = seconds_told(records, (0, 2, 6.0), (1, 3, 11.0), gloo=True)
    assert first == 0 and second == 11


def test_the_recorder_is_switched_on_by_the_variable_that_the_version_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = module("hvdrank_collectives")
    monkeypatch.setattr(os, "environ", {})  # later tests start ranks with the real one
    for version, name in (("2.7.1", "TORCH_NCCL_TRACE_BUFFER_SIZE"), ("2.8.0+cu128", "TORCH_FR_BUFFER_SIZE")):
        for variable in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__=version))  # type: ignore[arg-type]
        watcher.fill_recorder()
        assert [v for v in os.environ if v.startswith(("TORCH_FR_B", "TORCH_NCCL_TRACE"))] == [name]
