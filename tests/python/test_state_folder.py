"""The folder of --state-dir: one job at a time; only files under this job's lock are loaded or removed."""

from __future__ import annotations

import errno
import os
import pathlib
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hvd._elastic import state_file as _state_file
from hvd._elastic import state_folder as _state_folder
from hvd._elastic.state_folder import LOCK, NAME, StateFileError, StateFolder
from hvd._job import preemption as _preemption
from hvd._job.own_folder import RefusedPath
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world
from hvd.elastic import ObjectState


def always() -> bool:
    return True


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "state"


def written(place: pathlib.Path, commits: int, job: str = "a") -> StateFolder:
    """The folder after a commit."""
    folder = StateFolder(str(place), job, make=True)
    folder.claim()
    folder.write(commits, b"x" * 1000, always)
    return folder


@contextmanager
def holder(place: pathlib.Path, job: str) -> Iterator[int]:
    """A process that has written commit 3, and holds the lock."""
    ready, ready_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)
            folder = written(place, 3, job)
            os.write(ready_end, b"x")
            signal.pause()
            del folder
        finally:
            os._exit(1)
    assert os.read(ready, 1) == b"x"
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(ready_end)


def names(place: pathlib.Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_one_job_at_a_time(place: pathlib.Path) -> None:
    other = StateFolder(str(place), "b", make=True)
    with holder(place, "a") as pid:
        begin = time.monotonic()
        with pytest.raises(StateFileError) as refused:
            other.claim(0.2)
        assert 0.2 <= time.monotonic() - begin < 30
        assert f"another job (process {pid} on {socket.gethostname()}) uses {place}: wait for its end" in str(refused.value)
        StateFolder(str(place), "a", make=True).claim()  # another rank of the same job
        other.claim(0.2, lambda: False)  # no further claim is wanted
        assert not other._has_lock()
    other.claim()
    assert other.commits() == 3


def test_only_this_job_s_file_is_removed(place: pathlib.Path) -> None:
    ours, others = StateFolder(str(place), "a", make=True), StateFolder(str(place), "b", make=True)
    with holder(place, "a"):
        others.remove()
        assert names(place) == [NAME, LOCK]
        ours.remove()  # the lock belongs to the other rank
        assert names(place) == [LOCK]
    written(place, 4).close()
    others.remove()  # a dead job's
    assert names(place) == [NAME, LOCK]
    ours.remove()  # the rank with the lock is dead
    assert names(place) == []
    ours.remove()
    assert names(place) == []
    assert written(place, 1, "b").commits() == 1
    ours.remove()  # this process's other job has the lock
    assert NAME in names(place)


def test_a_forked_child_does_not_keep_the_lock(place: pathlib.Path) -> None:
    folder = written(place, 1)
    pid = os.fork()  # like a worker of a DataLoader
    if pid == 0:
        signal.alarm(60)
        signal.pause()
        os._exit(0)
    folder.close()
    try:
        with holder(place, "b"):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_an_older_file_is_refused(place: pathlib.Path) -> None:
    folder = written(place, 5)
    older = (place / NAME).read_bytes()
    folder.write(9, b"y", always)
    with pytest.raises(StateFileError, match="is of commit 9 by now, and this rank's commit 8 is older"):
        folder.write(8, b"y", always)
    assert folder.commits() == 9
    folder.close()
    (place / NAME).write_bytes(older)
    folder = StateFolder(str(place), "b", make=True)
    folder.claim()
    with pytest.raises(StateFileError, match=f"{NAME} is of commit 5, but commit 9 was written there.*Remove {LOCK}"):
        folder.commits()
    folder.close()
    (place / LOCK).unlink()
    folder = StateFolder(str(place), "b", make=True)
    folder.claim()
    assert folder.commits() == 5
    assert folder.read(5) == b"x" * 1000


def test_a_new_training_may_begin_where_the_file_was_moved_away(place: pathlib.Path) -> None:
    written(place, 9).close()
    (place / NAME).unlink()
    assert written(place, 1, "b").commits() == 1


def test_the_count_of_commits_is_protected_too(place: pathlib.Path) -> None:
    folder = written(place, 5)
    data = bytearray((place / NAME).read_bytes())
    data[len(_state_folder._MARK)] = 6
    (place / NAME).write_bytes(data)
    assert folder.commits() == 6
    with pytest.raises(StateFileError, match="has changed since it was written"):
        folder.read(6)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (NAME, b"hvdrun elastic state 1\n\0" + bytes(100), "was written by another version of hvdrun"),
        (LOCK, b"my own notes", "is no lock of an elastic job"),
    ],
)
def test_what_is_not_ours_stays(place: pathlib.Path, name: str, text: bytes, words: str) -> None:
    place.mkdir()
    (place / name).write_bytes(text)
    folder = StateFolder(str(place), "a", make=True)
    with pytest.raises(StateFileError, match=f"{name} {words}"):
        folder.claim()
        folder.commits()
    with pytest.raises(StateFileError, match=f"{name} {words}"):
        folder.claim()
        folder.write(1, b"", always)
    try:
        folder.remove()
    except StateFileError:
        pass
    assert (place / name).read_bytes() == text


def test_a_lock_after_a_crash(place: pathlib.Path) -> None:
    """Zeros, or half a note: the job continues, and has no note."""
    place.mkdir()
    for text in (bytes(80), b'{"job": "a", "ho'):
        (place / LOCK).write_bytes(text)
        folder = written(place, 1, "b")
        assert folder.commits() == folder._noted() == 1
        folder.close()


def test_another_user_s_link_is_not_followed(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    place.symlink_to("real/inner/state")
    written(place, 1).close()  # our own
    assert names(tmp_path / "real" / "inner" / "state") == [NAME, LOCK]
    if os.geteuid() != 0:
        pytest.skip("only root gives links away")
    os.lchown(place, 65534, 65534)
    with pytest.raises(RefusedPath, match=re.escape(f"{place} leads through a link of another user (uid 65534)")):
        StateFolder(str(place), "a", make=True)
    with pytest.raises(RefusedPath):
        StateFolder(f"{place}/deeper", "a", make=True)


def test_the_folder_stays_the_same_one(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If another folder takes the name of the state folder, the job does not write to it."""
    folder = written(place, 1)
    place.rename(tmp_path / "moved")
    place.mkdir()
    folder.write(2, b"", always)
    assert folder.commits() == 2
    assert names(place) == []
    folder.remove()
    assert names(tmp_path / "moved") == []


# ---- StateFile, in a world of one


@pytest.fixture
def file(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> _state_file.StateFile:
    monkeypatch.setattr(_world, "rank", lambda: 0)
    monkeypatch.setattr(_objects, "broadcast_object", lambda obj, *_: obj)
    monkeypatch.setattr(_objects, "allgather_object", lambda obj, *_: [obj])
    monkeypatch.setattr(_state_file, "_REST", 0)
    monkeypatch.setattr(_state_file, "_END_SECONDS", 0.05)
    return _state_file.StateFile(str(place))


def state() -> ObjectState:
    return ObjectState(lambda obj: obj, lambda: 0, step=0)


@pytest.mark.parametrize("where", ["pickling", "syncing", "claiming"])
def test_a_commit_under_way_does_not_come_back(
    file: _state_file.StateFile, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow(function: Any) -> Any:
        def waits(*arguments: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                reached.set()
                assert go_on.wait(60)
            return function(*arguments)

        return waits

    assert file.load(state()) is False
    file.put(1, {"step": 1})
    file.flush(60)
    assert NAME in names(place)
    if where == "pickling":
        monkeypatch.setattr(_objects._pickler(), "dumps", slow(_objects._pickler().dumps))
    elif where == "syncing":
        monkeypatch.setattr(os, "fsync", slow(os.fsync))
    else:
        monkeypatch.setattr(StateFolder, "claim", slow(StateFolder.claim))
    file.put(2, {"step": 2})
    assert reached.wait(60)
    file.finish()
    go_on.set()
    file.flush(60)
    assert names(place) == []
    monkeypatch.undo()


def test_a_full_disk(
    file: _state_file.StateFile, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The lock also works without a note; a state is read even if the lock file cannot be made."""

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        assert file.load(state()) is False
    assert file._folder is not None
    assert not file._folder.is_noted
    file.put(1, {"values": {"step": 7}})
    file.flush(60)
    assert file._folder.is_noted
    assert capfd.readouterr().err == ""
    found = state()
    with monkeypatch.context() as patched:
        patched.setattr(StateFolder, "_claim_now", full)
        assert file.load(found) is True
    assert found.step == 7
    assert "No space left on device. Training goes on" in capfd.readouterr().err
    file.finish()
    assert names(place) == []


def test_a_second_training_of_the_same_job(
    file: _state_file.StateFile, place: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert file.load(state()) is False
        file.begin_world()
        for commit in (1, 2):
            file.put(commit, {"step": commit})
            file.flush(60)
        file.finish()
        assert names(place) == []
    assert capfd.readouterr().err == ""


def restarted(place: pathlib.Path, *calls: str) -> _state_file.StateFile:
    file = _state_file.StateFile(str(place))
    for function in calls:
        file.begin_call(function)
    return file


def test_a_state_belongs_to_one_call(file: _state_file.StateFile, place: pathlib.Path) -> None:
    for function in ("warm", "train", "train"):
        file.begin_call(function)
    file.put(3, {"values": {"step": 3}})
    file.flush(60)
    file._close()
    before = (place / NAME).read_bytes()
    for calls in (["train"], ["warm"], ["warm", "train"]):
        earlier = restarted(place, *calls)
        words = rf"{NAME} is of call 2 of train\(\), and this is call 1 of {calls[-1]}\(\).*move the file away"
        with pytest.raises(StateFileError, match=words):
            earlier.load(state())
        earlier._close()
        assert (place / NAME).read_bytes() == before
    same, found = restarted(place, "train", "train"), state()
    assert same.load(found) and found.step == 3
    same.begin_call("train")  # the second call has raised
    assert same.load(state()) is False
    assert names(place) == []
    late = restarted(place, "train")
    late.take_call(same.call)
    late.begin_call("train")
    assert late.call == ("train", 4)


def test_an_older_file_is_for_the_first_call(file: _state_file.StateFile, place: pathlib.Path) -> None:
    """A file of the older format names no call of hvd.elastic.run: the first call takes its state."""
    written(place, 1).close()
    payload = _objects._pickler().dumps({"values": {"step": 7}})
    numbers = _state_folder._OLDER_NUMBERS.pack(2, len(payload))
    (place / NAME).write_bytes(_state_folder._OLDER_MARK + numbers + _state_folder._digest(numbers, payload) + payload)
    second = restarted(place, "warm", "train")
    with pytest.raises(StateFileError, match="is of an unknown call, and this is call 1 of train"):
        second.load(state())
    second._close()
    first, found = restarted(place, "train"), state()
    assert first.load(found) and found.step == 7
    first.put(3, {"values": {"step": 8}})
    first.flush(60)
    assert first._folder is not None and first._folder.call() == ("train", 1)


def test_what_ranks_have_in_memory_is_not_lost_to_an_older_file(file: _state_file.StateFile) -> None:
    assert file.load(state(), held=0) is False
    file.put(3, {"values": {"step": 3}})
    file.flush(60)
    with pytest.raises(StateFileError, match=r"rank 0 has commit 5 in memory, but the state in .* is of commit 3"):
        file.load(state(), held=5)
    for held in (-1, 3, 4):  # the last one is a commit that the others have not made
        found = state()
        assert file.load(found, held) is True
        assert (found._commits, found.step) == (3, 3)


def test_a_folder_that_goes_and_comes_back(
    file: _state_file.StateFile, place: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert file.load(state()) is False
    place.rename(tmp_path / "old")
    for name in names(tmp_path / "old"):
        (tmp_path / "old" / name).unlink()
    (tmp_path / "old").rmdir()
    for commit in (1, 2):
        file.put(commit, {"step": commit})
        file.flush(60)
    assert capfd.readouterr().err.count("the state is not written") == 1
    assert names(place) == [NAME, LOCK]
    file.finish()
    assert names(place) == []


def test_what_is_queued_is_written_before_an_error_or_signal(
    file: _state_file.StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread rests.  A forked child of the rank has no handler."""
    default = signal.getsignal(signal.SIGTERM)
    assert default == signal.SIG_DFL
    for ends in (KeyboardInterrupt, ValueError):
        monkeypatch.setattr(_state_file, "_REST", 1e9)
        file.put(1, {"step": 1})
        file.flush(60)
        with pytest.raises(ends), _preemption.finishes_writing(lambda: file.flush(60), True):
            assert signal.getsignal(signal.SIGTERM) is _preemption.end
            pid = os.fork()
            if pid == 0:
                os._exit(signal.getsignal(signal.SIGTERM) != signal.SIG_DFL)
            assert os.waitpid(pid, 0)[1] == 0
            file.put(2, {"step": 2})
            raise ends
        assert file._folder is not None and file._folder.commits() == 2
        assert signal.getsignal(signal.SIGTERM) == default
        file.finish()
