"""Gradients that are complete, until they go to the runtime together.

Each submission of a tensor on a GPU costs an event, a wake-up of the engine's thread and an NCCL group; many in one call
cost hardly more than one.  So hooks put gradients here, and several leave at once: a few early, so that the GPUs begin to
exchange, the others by bytes and number, and the rest when backward() ends.

No rank waits for a gradient that another rank's outbox holds:
  - torch calls the outbox at the end of each backward(); where it cannot, nothing is held back;
  - a backward() that fails calls nobody.  Whoever waits for an operation in this process hands over first, and so do
    the reducer's own calls and the next backward();
  - gradients are matched by name, so the ranks' outboxes need not leave together.
A gradient leaves the outbox by a submission only.  One that the runtime refuses counts as not submitted again.
"""

from __future__ import annotations

from collections import deque
from threading import RLock
from typing import Any, Callable

import torch

from hvd import _native, _world
from hvd._submission import before_waiting
from hvd.torch._parameter_entries import ParameterEntry

_FIRST_NUMBER, _FIRST_BYTES = 8, 1 << 20  # of a step
_LEAST_NUMBER, _LEAST_BYTES, _MOST_BYTES = 40, 1 << 20, 25 << 20
_PARTS = 6  # of all gradients: about so many leave together

_engine: Any = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
# The number of the backward() that calls a hook.  Since torch 2.1
_backward_number: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)

_filled: set[Outbox] = set()  # those that hold something, or have until lately


def _flush_all() -> None:
    if _filled:
        for outbox in list(_filled):
            outbox.flush()


def _drop_all() -> None:
    for outbox in list(_filled):
        outbox.drop()


before_waiting.append(_flush_all)
_world.when_left.append(_drop_all)  # other names and other process sets will count


class Outbox:
    """Of one reducer.  Hooks of several devices may use it at once, each from a thread of its own."""

    def __init__(self, pending: dict[int, Any], refused: Callable[[ParameterEntry], None]) -> None:
        """pending: takes the tensors that are under way, by handle.  refused: told of what could not be submitted."""
        self._pending = pending
        self._refused = refused
        self._waiting: deque[tuple[ParameterEntry, Any]] = deque()  # entry, request
        self._bytes = 0
        self._lock = RLock()
        self._backward = -1  # the last one whose end will flush
        self._begun = False  # this step
        self._number_limit, self._bytes_limit = _LEAST_NUMBER, _LEAST_BYTES

    def plan(self, entries: list[ParameterEntry]) -> None:
        """entries: all that may come in a step."""
        total = sum(entry.bytes for entry in entries)
        self._number_limit = max(_LEAST_NUMBER, len(entries) // _PARTS)
        self._bytes_limit = min(max(_LEAST_BYTES, total // _PARTS), _MOST_BYTES)

    def add(self, entry: ParameterEntry, request: Any) -> None:
        """Takes one.  It leaves with the next flush()."""
        self._waiting.append((entry, request))
        self._bytes += entry.bytes

    def look(self) -> None:
        """In a hook, after add(): flushes where there is enough, else sees to it that the end of backward() does."""
        number = len(self._waiting)
        if self._begun:
            enough = number >= self._number_limit or self._bytes >= self._bytes_limit
        else:
            enough = self._begun = number >= _FIRST_NUMBER or self._bytes >= _FIRST_BYTES
        if enough:
            self.flush()
        elif number:
            backward = _backward_number()
            if backward != self._backward or backward < 0:
                self._ask_for_the_end(backward)

    def _ask_for_the_end(self, backward: int) -> None:
        _filled.add(self)
        try:
            _engine.queue_callback(self._ended)
            self._backward = backward
        except RuntimeError:  # the hook was called by something else than a backward()
            self.flush()

    def _ended(self) -> None:
        self._begun = False
        self.flush()

    def flush(self) -> None:
        """Submits all that is here.  Errors: the runtime's."""
        if not self._waiting:
            return
        with self._lock:
            _filled.discard(self)
            entries, requests = self._take()
            if not entries:
                return
            try:
                handles = _native.submit_many(requests, False) if len(requests) > 1 else [_native.submit(requests[0])]
            except BaseException:
                for entry in entries:
                    self._refused(entry)
                raise
            for entry, handle in zip(entries, handles):
                entry.handle = handle
                self._pending[handle] = entry.work

    def drop(self) -> None:
        """Forgets what is here: it counts as not submitted."""
        with self._lock:
            _filled.discard(self)
            for entry in self._take()[0]:
                self._refused(entry)

    def _take(self) -> tuple[list[ParameterEntry], list[Any]]:
        entries, requests = [], []
        self._bytes = 0
        while self._waiting:
            entry, request = self._waiting.popleft()
            entries.append(entry)
            requests.append(request)
        return entries, requests
