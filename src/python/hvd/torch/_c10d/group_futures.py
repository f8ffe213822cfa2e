"""Futures of a process group's operations.

A callback may begin further operations, as DDP's hook for PowerSGD does.  A callback runs in the thread that completes its
future.  If the future is complete, the thread that adds the callback runs it.  Other callbacks may run at the same time.  The
moment differs between ranks.  So a callback's operations have no place in the order of the group's calls.  They have their own
order, under the name of the callback.  The name has two parts: the operation that began the chain of futures, and the
callback's number in the chain.
"""

from __future__ import annotations

import atexit
import itertools
import threading
import time
from collections import deque
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, Callable, Protocol
from weakref import WeakKeyDictionary

import torch

from hvd import exceptions

_END_SECONDS = 1.0

_thread = threading.local()


def caller() -> bytes:
    """The name of the current thread's callback; empty outside of callbacks."""
    return getattr(_thread, "caller", b"")


class Promise:
    """A future that this package completes.

    future: torch's.  Its error is a C++ error.  If Python completed the future with an exception, the exception would
    be its value.  C++ code, such as DistributedDataParallel's, would take that value for tensors.  Waiting for the
    future raises a RuntimeError, as for all backends.
    """

    def __init__(self, devices: Sequence[torch.device] = (), origin: bytes = b"") -> None:
        """devices: of the tensors if they are on GPUs.  origin: the operation's name, if callbacks have names."""
        self._given: Any = torch.futures.Future(devices=list(devices))
        self._errors: list[BaseException] = []
        self.future: Any = _then(self._given, partial(_raise_or_return, self._errors))
        self._names = CallbackNames(origin) if origin else None
        if self._names:
            _name_callbacks(self.future, self._names)

    def set_result(self, result: Any) -> None:
        """Completes the future, and runs its callbacks."""
        self._given.set_result(result)

    def set_error(self, error: BaseException) -> None:
        """Completes the future with an error, and runs its callbacks."""
        exceptions.note_carried(error)
        self._errors.append(error)
        if self._names:
            self._names.error = error
        self._given.set_result(None)


def _raise_or_return(errors: list[BaseException], given: Any) -> Any:
    if errors:
        raise errors.pop().with_traceback(None)
    return given.value()


class CallbackNames:
    """The callback names in a chain of futures that begins with one operation.  origin: the operation's name."""

    def __init__(self, origin: bytes) -> None:
        self._origin = origin
        self._numbers = itertools.count(1)
        self.error: BaseException | None = None  # the operation's

    def naming(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wraps the callback, so that it has the next name while it runs."""
        name = b"%s.%d" % (self._origin, next(self._numbers))

        def call(done: Any) -> Any:
            before, _thread.caller = caller(), name
            try:
                return callback(done)
            except RuntimeError as raised:
                # Each future of the chain would add its own prefix to the message.
                if self.error is not None and str(self.error) in str(raised):
                    raise self.error.with_traceback(None) from None
                raise
            finally:
                _thread.caller = before

        return call


# torch's own futures know no names.  Only they can have errors, and the futures that then() returns cannot be of a derived
# class.  So then() and add_done_callback() of all futures look here first, once an operation has a future.
_names: WeakKeyDictionary[Any, CallbackNames] = WeakKeyDictionary()
_then: Any = torch._C.Future.then
_add_done_callback: Any = torch._C.Future.add_done_callback


def _name_callbacks(future: Any, names: CallbackNames) -> None:
    if torch._C.Future.then is not _named_then:
        torch._C.Future.then = _named_then  # type: ignore[method-assign]
        torch._C.Future.add_done_callback = _named_add_done_callback  # type: ignore[method-assign]
    _names[future] = names


def _named_then(self: Any, callback: Callable[[Any], Any]) -> Any:
    """then(), which names its callback and following futures if this future has a name."""
    names = _names.get(self)
    if names is None:
        return _then(self, callback)
    following = _then(self, names.naming(callback))
    _names[following] = names
    return following


def _named_add_done_callback(self: Any, callback: Callable[[Any], None]) -> None:
    """add_done_callback(), which names its callback if this future has a name."""
    names = _names.get(self)
    _add_done_callback(self, names.naming(callback) if names else callback)


class Awaited(Protocol):
    """An operation with a future."""

    def await_end(self) -> Exception | None:
        """Waits for the operation's end; returns its error."""

    def fill_future(self, error: BaseException | None) -> None:
        """Completes the future, and runs its callbacks."""


class FutureFiller:
    """Completes futures, in the order of their requests within each line.

    A line holds the operations of one caller: the program, or one callback.  No line waits for another.  The program may have
    begun its next operation here, while another rank is still in a callback (in then()).  The next operation ends only after
    the callback's operations.  So this rank must complete their futures first.

    There is always a free thread, because a future's callback may wait for another future.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[Hashable, deque[Awaited]] = {}
        self._unattended: deque[Hashable] = deque()  # lines without a thread
        self._threads: list[threading.Thread] = []
        self._free = 0  # threads without a line
        self._leaving = False
        self.ending = False  # the process is ending

    def add(self, work: Awaited, line: Hashable) -> None:
        with self._changed:
            if line in self._lines:
                self._lines[line].append(work)
                return
            self._lines[line] = deque([work])
            self._offer(line)

    def _offer(self, line: Hashable) -> None:
        """Gives the line to a free thread, or to a new one.  Under the lock."""
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
        # A thread inside torch at the interpreter's end would end the process with an error.  A thread that still waits for
        # an operation is inside the runtime and may stay.
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
