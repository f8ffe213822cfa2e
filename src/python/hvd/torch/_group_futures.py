"""Futures of a process group's operations.

A callback may begin further operations, as DDP's hook for PowerSGD does.  It runs in whatever thread completes its future,
or adds it to one that is complete, beside other callbacks: on each rank at another moment.  So its calls have no place in
the order of the group's calls.  They have an order of their own, under the name of the callback: the operation that its
chain of futures began with, and its number there.
"""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
import time
from collections.abc import Iterator
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
    """Completes futures in the order in which they were asked for.

    One thread does it, as long as the callbacks come back at once.  One may also wait for another future: that is completed
    by a second thread, and so on; some thread is always free.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[Awaited | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._inside = 0  # threads that are in callbacks
        self._lock = threading.Lock()
        self.ending = False  # the process

    def add(self, work: Awaited) -> None:
        self._works.put(work)
        with self._lock:
            self._keep_one_free()

    def _keep_one_free(self) -> None:
        if len(self._threads) > self._inside or self.ending:
            return
        if not self._threads:
            atexit.register(self._end)
        thread = threading.Thread(target=self._run, name="hvd c10d", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _end(self) -> None:
        # A thread that is inside torch when the interpreter ends would end the process with an error.  One that still
        # waits for an operation is inside the runtime: it may stay.
        limit = time.monotonic() + _END_SECONDS
        for _ in self._threads:
            self._works.put(None)
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))
        self.ending = True

    def _run(self) -> None:
        while work := self._works.get():
            error = work.await_end()
            with self._lock:
                self._inside += 1
                if not self._works.empty():
                    self._keep_one_free()
            work.fill_future(error)
            with self._lock:
                self._inside -= 1


filler = FutureFiller()
