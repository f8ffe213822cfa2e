"""Futures of a process group's operations.

A callback may begin further operations, as DDP's hook for PowerSGD does.  It runs in whatever thread completes its future,
or adds it to one that is complete, beside other callbacks: on each rank at another moment.  So its calls have no place in
the order of the group's calls.  They have an order of their own, under the name of the callback: the operation that its
chain of futures began with, and its number there.
"""

from __future__ import annotations

import atexit
import itertools
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Callable, Protocol

import torch

_END_SECONDS = 1.0

_thread = threading.local()


def caller() -> bytes:
    """The name of the callback that this thread is in; empty: of none."""
    return getattr(_thread, "caller", b"")


class NamedFuture(torch.futures.Future):  # type: ignore[type-arg]
    """A future whose callbacks have names.  origin: the operation's; numbers: of the callbacks of its whole chain."""

    def __init__(self, origin: bytes, devices: list[Any], numbers: Iterator[int] | None = None) -> None:
        super().__init__(devices=devices)
        self._origin = origin
        self._devices = devices
        self._numbers = numbers or itertools.count(1)

    def then(self, callback: Callable[[Any], Any]) -> Any:
        following = NamedFuture(self._origin, self._devices, self._numbers)

        def call(done: Any) -> None:
            try:
                result = callback(done)
            except Exception as error:
                following.set_exception(error)
            else:
                following.set_result(result)

        self.add_done_callback(call)
        return following

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        name = b"%s.%d" % (self._origin, next(self._numbers))

        def call(done: Any) -> None:
            before, _thread.caller = caller(), name
            try:
                callback(done)
            finally:
                _thread.caller = before

        super().add_done_callback(call)


class Awaited(Protocol):
    """What has a future."""

    def await_end(self) -> Exception | None:
        """Until it has ended, with this error."""

    def fill_future(self, error: BaseException | None) -> None:
        """Completes the future, and runs what waits for that."""


class FutureFiller:
    """Completes futures, each line's in the order in which they were asked for.

    A line is what one caller has begun: the program, or one callback.  No line waits for another.  On this rank the program
    may have begun its next operation, while on another one it is still in a callback, inside of then(): then that operation
    ends only after those of the callback, whose futures this rank must complete first.

    Some thread is always free, as a future's callback may wait for another future.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[Hashable, deque[Awaited]] = {}
        self._unattended: deque[Hashable] = deque()  # lines that no thread waits for
        self._threads: list[threading.Thread] = []
        self._free = 0  # threads without a line
        self._leaving = False
        self.ending = False  # the process

    def add(self, work: Awaited, line: Hashable) -> None:
        with self._changed:
            if line in self._lines:
                self._lines[line].append(work)
                return
            self._lines[line] = deque([work])
            self._offer(line)

    def _offer(self, line: Hashable) -> None:
        """To a free thread, or a new one.  Under the lock."""
        self._unattended.append(line)
        if self._free >= len(self._unattended) or self._leaving:
            self._changed.notify()
            return
        if not self._threads:
            atexit.register(self._end)
        thread = threading.Thread(target=self._run, name="hvd c10d", daemon=True)
        self._threads.append(thread)
        self._free += 1
        thread.start()

    def _end(self) -> None:
        # A thread that is inside torch when the interpreter ends would end the process with an error.  One that still
        # waits for an operation is inside the runtime: it may stay.
        limit = time.monotonic() + _END_SECONDS
        with self._changed:
            self._leaving = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))
        self.ending = True

    def _run(self) -> None:
        while (line := self._next_line()) is not None:
            work = self._lines[line].popleft()
            error = work.await_end()
            self._hand_on(line)
            work.fill_future(error)
            with self._changed:
                self._free += 1

    def _next_line(self) -> Hashable | None:
        with self._changed:
            while not self._unattended:
                if self._leaving:
                    return None
                self._changed.wait()
            self._free -= 1
            return self._unattended.popleft()

    def _hand_on(self, line: Hashable) -> None:
        with self._changed:
            if self._lines[line]:
                self._offer(line)
            else:
                del self._lines[line]


filler = FutureFiller()
