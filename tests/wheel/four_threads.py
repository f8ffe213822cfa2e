"""A rank whose four threads use hvd's C module at once: four_threads.py ROUNDS. For an interpreter without a GIL.

test_free_threaded.py runs it, also under ThreadSanitizer. It ends with the line "four threads: ok".
"""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
import types
from typing import Any, Callable

import numpy as np

import hvd.numpy as hvd
from hvd import _native
from hvd._runtime.requests import HOST, Operation, Request

THREADS, LIMIT_SECONDS = 4, 300
ROUNDS = int(sys.argv[1])
SUM = Operation(_native.ALLREDUCE, 0, _native.Sum)
FLOATS = _native.DTYPES["float64"]
PARAMETER = types.SimpleNamespace(grad=1)


def at_once(work: Callable[[int], None]) -> None:
    """Runs work(0) to work(3) on four threads; the first failure ends the rank."""
    barrier, failed = threading.Barrier(THREADS), []

    def run(number: int) -> None:
        try:
            barrier.wait(LIMIT_SECONDS)
            work(number)
        except BaseException:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    if failed or any(thread.is_alive() for thread in threads):
        sys.exit(f"{work.__name__}: {failed[0] if failed else 'a thread does not end'}")


def operations(number: int) -> None:
    """Each thread has operations of its own."""
    for turn in range(ROUNDS):
        name = f"own.{number}.{turn}"
        sums = [hvd.allreduce_async(np.full(100, number + 1.0), name=f"{name}.{n}", op=hvd.Sum) for n in range(4)]
        group = hvd.grouped_allreduce([np.full(3, 2.0), np.full(5, 3.0)], name=f"{name}.group", op=hvd.Sum)
        assert [part[0] for part in group] == [2.0 * hvd.size(), 3.0 * hvd.size()]
        for handle in sums:
            while not hvd.poll(handle):
                pass
            assert (hvd.synchronize(handle) == (number + 1.0) * hvd.size()).all()
        rows = hvd.allgather(np.full((hvd.rank() + 1, 2), number), name=f"{name}.rows")
        assert rows.shape == (hvd.size() * (hvd.size() + 1) // 2, 2)


def request(array: Any, name: str) -> Request:
    """An allreduce of the array, in place."""
    return Request(SUM, name, (array.ctypes.data, FLOATS, array.shape, HOST), array.ctypes.data)


def one_handle() -> None:
    """All threads poll the same operations, which are in one list."""
    arrays = [np.ones(1000) for _ in range(ROUNDS)]
    handles = _native.submit_many([request(array, f"one.{n}") for n, array in enumerate(arrays)], False)

    def ask(_: int) -> None:
        for handle in handles:
            while not _native.poll(handle):
                pass
            _native.wait(handle)

    at_once(ask)
    _native.finish_many(handles)
    assert all(array[0] == hvd.size() for array in arrays)


def changing_list() -> None:
    """A list that other threads change: every call sees a list of that time, or an error."""
    numbers: list[Any] = []

    def change(number: int) -> None:
        for turn in range(100 * ROUNDS):
            if number < 2:
                numbers.append(_native.Gradient())
                if turn % 7 == 6:
                    numbers.clear()
            else:
                found = _native.extraordinary(numbers)
                assert all(type(one) is _native.Gradient for one in found)
                _native.passes_begun(numbers)
                _native.clear_gradients(numbers)

    at_once(change)


class Outbox(_native.Outbox):
    """Takes gradients of all threads, as that of an optimizer does."""

    def current_operation(self) -> Operation:
        return SUM

    def ask_for_the_end(self, backward: int) -> None:
        self.backward = backward

    def refused(self, entry: Any) -> None:
        raise AssertionError(f"{entry.name} was refused")


def outbox() -> None:
    """Four threads fill and empty one outbox: each gradient is submitted once."""
    owned: dict[int, Any] = {}
    box = Outbox(owned, lambda: 1)
    box.number_limit = box.first_number = 5
    box.bytes_limit = box.first_bytes = 1 << 40
    entries: list[list[Any]] = [[] for _ in range(THREADS)]
    arrays: list[list[Any]] = [[] for _ in range(THREADS)]

    def fill(number: int) -> None:
        for turn in range(10 * ROUNDS):
            entry, array = _native.Gradient(), np.full(10, number + 1.0)
            entry.bytes, entry.work, entry.gradient = array.nbytes, array, array
            entries[number].append(entry)
            arrays[number].append(array)
            box.add(entry, request(array, f"outbox.{number}.{turn}"))
            box.look()
            if turn % 9 == 8:
                box.flush()

    at_once(fill)
    box.flush()
    flat = list(itertools.chain(*entries))
    assert (box.waiting, box.tensors) == (0, len(flat))
    assert all(entry.handle for entry in flat)
    _native.finish_many([entry.handle for entry in flat])
    for number in range(THREADS):
        assert all(array[0] == (number + 1.0) * hvd.size() for array in arrays[number])
    assert sum(map(len, owned.values())) == len(flat)
    box.release()
    assert not owned


def hooks() -> None:
    """Four threads call the hooks of one gradient: each pass counts once."""
    entry = _native.Gradient()
    told: list[object] = []
    entry.after = told.append
    entry.passes = entry.passes_left = THREADS * 100 * ROUNDS + 1

    def call(_: int) -> None:
        for _ in range(100 * ROUNDS):
            entry.make_hooks()[1](None)

    at_once(call)
    assert (entry.passes_left, told) == (1, [])
    entry.make_hooks()[1](None)
    assert told == [entry]


def hooks_of_the_dead() -> None:
    """A hook may outlive its gradient: three threads call hooks while the fourth drops the gradients."""
    places: list[Any] = [None] * 8
    given: list[Any] = [None] * 8

    def call(number: int) -> None:
        for turn in range(100 * ROUNDS):
            if number == 0:
                entry = _native.Gradient()
                entry.parameter = PARAMETER
                entry.passes = entry.passes_left = 1 << 30
                given[turn % 8] = entry.make_hooks()
                places[turn % 8] = entry
            elif both := given[turn % 8]:
                both[0](None)
                both[1](None)

    at_once(call)


def before_use() -> None:
    """One thread replaces the hook that calls of the other threads run first."""
    calls = itertools.count()

    def count() -> None:
        next(calls)

    def use(number: int) -> None:
        for turn in range(20 * ROUNDS):
            if number == 0:
                _native.before_use(count)
                _native.before_use(None)
            else:
                array = np.ones(2)
                _native.finish(_native.submit(request(array, f"before.{number}.{turn}")))
                assert array[0] == hvd.size()

    at_once(use)


hvd.init()
assert not sys._is_gil_enabled(), "importing hvd has switched the GIL on"  # type: ignore[attr-defined]
at_once(operations)
for part in (one_handle, changing_list, outbox, hooks, hooks_of_the_dead, before_use):
    part()
hvd.shutdown()
print("four threads: ok", flush=True)
