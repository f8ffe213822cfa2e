"""Works and messages of a process group, used by several threads at once.  No ranks: stand-ins replace the runtime."""

import threading
import time
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from hvd.torch._c10d import group_work as _group_work
from hvd.torch._c10d import point_to_point as _point_to_point
from hvd.torch._c10d.group_work import GroupState, GroupWork


def test_a_wait_takes_no_longer_than_its_limit_behind_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(handle: int, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    monkeypatch.setattr(_group_work._native, "wait_within", never)
    work = GroupWork(GroupState("c10d/test", 30.0), [123456789], [])
    took: list[float] = []

    def wait(seconds: float) -> None:
        begin = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="Timed out waiting"):
            work._end(seconds)
        took.append(time.monotonic() - begin)

    first = threading.Thread(target=wait, args=(2.0,))
    first.start()
    while not work._lock.locked():
        time.sleep(0.001)
    wait(2.2)
    first.join()
    _group_work.under_way.pop(123456789, None)
    assert max(took) < 4, took  # one after the other, they take 4.2 s


class _Pending:
    """A call that ends when the test says so."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def await_arrival(self) -> None:
        self.ended.wait()


def test_a_late_call_begins_after_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call behind an unfinished call returns at once. If the late call then cannot begin, wait() raises its error."""
    monkeypatch.setattr(_group_work._native, "wait_within", lambda handle, seconds: handle.__index__() == 77)
    monkeypatch.setattr(_group_work._native, "poll", lambda handle: handle.__index__() == 77)
    monkeypatch.setattr(_group_work._native, "release", lambda handle: None)
    group, earlier = GroupState("c10d/test", 30.0), _Pending()

    def refused() -> list[int]:
        raise ValueError("the world was left")

    good, bad = (GroupWork(group, group.late.add(earlier, submit, 1), []) for submit in (lambda: [77], refused))
    assert not good.is_completed() and not bad.is_completed()
    with pytest.raises(dist.DistBackendError, match="Timed out waiting"):
        good._end(0.05)
    earlier.ended.set()
    good.wait()
    with pytest.raises(ValueError, match="the world was left"):
        bad.wait()
    assert bad.is_completed() and not bad.is_success()
    assert not set(_group_work.under_way.values()) & {good, bad}


class _Sets:
    """The sets of a world that are never made."""

    left = False

    def refuse_if_left(self, label: str) -> None:
        pass

    def ask(self, ranks: Any, then: Any) -> None:
        pass


class _Met(dict[int, Any]):
    """get() waits until another thread is in it, or some time, so that two threads run in parallel if they can."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2)

    def get(self, *given: Any) -> Any:
        found = super().get(*given)
        try:
            self._both.wait(0.2)
        except threading.BrokenBarrierError:
            pass
        return found


def _messages() -> Any:
    return _point_to_point.PointToPoint(GroupState("c10d/test", 30.0), _Sets(), None, (0, 1), 0)  # type: ignore[arg-type]


def _both(call: Any) -> list[Any]:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(call())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_threads_get_one_line_to_a_peer() -> None:
    messages = _messages()
    messages._pairs = _Met()
    one, other = _both(lambda: messages._pair(1))
    assert one is other


def test_two_threads_get_numbers_of_their_own() -> None:
    messages = _messages()
    line = messages._pair(1)
    line._counts = _Met()
    names = _both(lambda: messages.recv(torch.zeros(1), 1, 0).name)
    assert len(set(names)) == 2, names
    assert messages._taken(0) == {1: 2}


def test_a_receive_from_any_source_takes_no_message_that_another_one_has() -> None:
    messages = _messages()
    message = _point_to_point.Message(GroupState("c10d/test", 30.0), torch.zeros(1), -1)
    messages.recv(torch.zeros(1), 1, 0)
    assert not messages._place_message(message, 1, 0, 1)
    assert messages._place_message(message, 1, 0, 2)
    assert message.source == 1
