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

from typing import Any, Callable

import torch

from hvd import _native
from hvd._native import ALLREDUCE
from hvd._runtime import world as _world
from hvd._runtime.requests import Operation
from hvd._runtime.submission import before_waiting
from hvd.torch._optimizer.parameter_entries import ParameterEntry

_FIRST_NUMBER, _FIRST_BYTES = 8, 1 << 20  # of a step
_LEAST_NUMBER, _LEAST_BYTES, _MOST_BYTES = 40, 1 << 20, 25 << 20
_PARTS = 6  # of all gradients: about so many leave together

_engine: Any = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
# The number of the backward() that calls a hook.  Since torch 2.1
_backward_number: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)

_filled: set[Outbox] = set()  # those that hold something, or have until lately
# Owns what the runtime reads and writes, also when the optimizer is gone before the operations have ended.
_owned: dict[int, Any] = {}
_world.tables_of_handles.append(_owned)


def _flush_all() -> None:
    if _filled:
        for outbox in list(_filled):
            _filled.discard(outbox)
            outbox.flush()


def _drop_all() -> None:
    for outbox in list(_filled):
        _filled.discard(outbox)
        outbox.drop()


before_waiting.append(_flush_all)
_world.when_left.append(_drop_all)  # other names and other process sets will count


class Outbox(_native.Outbox):
    """Of one reducer.  Hooks of several devices may use it at once, each from a thread of its own.

    The hooks put ordinary gradients in without Python (ext/native/gradient.c); add() is for all others.
    waiting: how many are here.  devices: the GPUs and streams that this step's gradients are from.
    """

    def __init__(self, settings: Any, refused: Callable[[ParameterEntry], None]) -> None:
        """settings: the reducer's Settings.  refused: told of what could not be submitted."""
        super().__init__(_owned, _backward_number)
        self._settings = settings
        self.refused = refused
        self._operation: Operation | None = None
        self.first_number, self.first_bytes = _FIRST_NUMBER, _FIRST_BYTES
        self.number_limit, self.bytes_limit = _LEAST_NUMBER, _LEAST_BYTES

    def plan(self, entries: list[ParameterEntry]) -> None:
        """entries: all that may come in a step."""
        total = sum(entry.bytes for entry in entries)
        self.number_limit = max(_LEAST_NUMBER, len(entries) // _PARTS)
        self.bytes_limit = min(max(_LEAST_BYTES, total // _PARTS), _MOST_BYTES)

    def current_operation(self) -> Operation:
        """What all gradients take part in; the set's number changes when the world does."""
        settings, operation = self._settings, self._operation
        number = settings.process_set.process_set_id
        if operation is None or operation.process_set != number:
            predivide = settings.predivide
            operation = Operation(ALLREDUCE, number, settings.op, 0, 1.0 / predivide, predivide)
            self._operation = operation
        return operation

    def ask_for_the_end(self, backward: int) -> None:
        """Has the end of this backward() flush."""
        _filled.add(self)
        try:
            _engine.queue_callback(self._ended)
            self.backward = backward
        except RuntimeError:  # the hook was called by something else than a backward()
            self.flush()

    def _ended(self) -> None:
        self.begun = False
        _filled.discard(self)
        self.flush()
