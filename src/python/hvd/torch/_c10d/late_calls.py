"""Calls that begin later, because an earlier call of their name is pending.

The calls of a loop take few names in turn (call_names.py).  A program may have any number of pending calls.  Another rank may
wait for the caller's next step.  So the caller goes on at once.  A thread begins the call when the earlier one has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Callable, Protocol

import torch.distributed as dist

from hvd import _native
from hvd._runtime import submission
from hvd.torch._c10d.group_futures import caller


class Earlier(Protocol):
    """A pending call.  await_arrival: waits for its end, whether it fails or not.  Raises RuntimeError if it stays pending."""

    def await_arrival(self) -> None: ...


class LateHandle:
    """The runtime's handle of a call that begins later.  After its begin, _native takes it in place of a number."""

    __slots__ = ("_begun", "_error", "_number")

    def __init__(self) -> None:
        self._begun = threading.Event()
        self._number: int | None = None
        self._error: Exception | None = None

    def __index__(self) -> int:
        if self._number is None:
            raise RuntimeError("this call has not begun")
        return self._number

    def __lt__(self, other: int) -> bool:
        return False  # numbers below 0 are of calls in CUDA graphs, which are never late

    def begin(self, number: int) -> None:
        self._number = number
        self._begun.set()

    def refuse(self, error: Exception) -> None:
        self._error = error
        self._begun.set()

    def is_pending(self) -> bool:
        return not self._begun.is_set()

    def wait_for_begin(self, seconds: float) -> bool:
        """False after the time limit.  Raises the error of a call that could not begin."""
        if not self._begun.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True


def wait_within(handle: int | LateHandle, seconds: float) -> bool:
    if isinstance(handle, LateHandle) and not handle.wait_for_begin(seconds):
        return False
    return _native.wait_within(handle, seconds)  # type: ignore[arg-type]


def has_ended(handle: int | LateHandle) -> bool:
    if isinstance(handle, LateHandle):
        if handle.is_pending():
            return False
        if handle._number is None:
            return True
    return _native.poll(handle)  # type: ignore[arg-type]


def is_under_way(handle: int | LateHandle) -> bool:
    """Returns whether the call has not ended.  A call that has not begun counts too."""
    if isinstance(handle, LateHandle) and handle._number is None:
        return handle.is_pending()
    return submission.is_under_way(handle)  # type: ignore[arg-type]


def release(handle: int | LateHandle) -> None:
    if not isinstance(handle, LateHandle) or handle._number is not None:
        _native.release(handle)  # type: ignore[arg-type]


_Call = tuple[Earlier, Callable[[], Sequence[int]], Sequence[LateHandle]]


class LateCalls:
    """One group's late calls.  They begin in their order: the program's, and those of each callback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[bytes, deque[_Call]] = {}  # by caller; each has a thread

    def add(self, earlier: Earlier, submit: Callable[[], Sequence[int]], count: int) -> list[Any]:
        """Calls submit() after the end of earlier.  Returns the handles: [count]."""
        handles = [LateHandle() for _ in range(count)]
        line = caller()
        with self._lock:
            if line in self._lines:
                self._lines[line].append((earlier, submit, handles))
                return handles
            self._lines[line] = deque([(earlier, submit, handles)])
        threading.Thread(target=self._begin_each, args=(line,), name="hvd late calls", daemon=True).start()
        return handles

    def _begin_each(self, line: bytes) -> None:
        while True:
            with self._lock:
                if not self._lines[line]:
                    del self._lines[line]
                    return
                earlier, submit, handles = self._lines[line].popleft()
            try:
                earlier.await_arrival()
                numbers = submit()
            except Exception as error:
                # A wait's DistBackendError says that the call is pending.
                ends_it = RuntimeError(str(error)) if isinstance(error, dist.DistBackendError) else error
                for handle in handles:
                    handle.refuse(ends_it)
                continue
            for handle, number in zip(handles, numbers):
                handle.begin(number)
