"""Complete gradients that wait for a common submission.

A submission of a GPU tensor costs an event, a wake-up of the engine's thread and an NCCL group.  Many tensors in one call cost
hardly more than one.  So hooks collect gradients in an outbox, and submit several at once.  The first few are submitted early,
so that the GPUs begin to exchange.  Later ones are submitted after a number of bytes or gradients.  The last ones are submitted
when backward() ends.

No rank waits for a gradient that another rank's outbox holds:
  - torch calls the outbox at the end of each backward(). If it cannot, no gradient is held back;
  - a backward() that fails does not call the outbox.  But a waiting thread of this process flushes first, and so do the
    reducer's own calls and the next backward();
  - gradients are matched by name, so the ranks' outboxes need not flush at the same time.
A gradient leaves the outbox by submission or, at the end of a world, by drop(). A refused one can be submitted again.
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

_FIRST_NUMBER, _FIRST_BYTES = 8, 1 << 20  # a step's first flush comes at either limit
_LEAST_NUMBER, _LEAST_BYTES, _MOST_BYTES = 40, 1 << 20, 25 << 20
_PARTS = 6  # a step has approximately this number of flushes

_engine: Any = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
# The number of the backward() that calls a hook.  Since torch 2.1
_backward_number: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)

# Owns the memory of operations in progress, also when the optimizer is gone before they end.
_owned: dict[int, Any] = {}
_world.tables_of_handles.append(_owned)


def _drop_all() -> None:
    while before_waiting:
        before_waiting.pop().drop()


_world.when_left.append(_drop_all)  # the next world has other names and other process sets


class Outbox(_native.Outbox):
    """The outbox of one reducer.  Hooks of several devices may use it at once; each device has its own thread.

    The hooks put ordinary gradients in without Python (ext/native/gradients/gradient.c); add() is for all others.
    waiting: the number of gradients in it.  devices: the GPUs and streams of this step's gradients.
    """

    def __init__(self, settings: Any, refused: Callable[[ParameterEntry], None]) -> None:
        """settings: the reducer's Settings.  refused: the outbox calls it with each entry that was not submitted."""
        super().__init__(_owned, _backward_number)
        self._settings = settings
        self.refused = refused
        self._operation: Operation | None = None
        self.first_number, self.first_bytes = _FIRST_NUMBER, _FIRST_BYTES
        self.number_limit, self.bytes_limit = _LEAST_NUMBER, _LEAST_BYTES

    def plan(self, entries: list[ParameterEntry]) -> None:
        """entries: all parameters that may have gradients in a step."""
        total = sum(entry.bytes for entry in entries)
        self.number_limit = max(_LEAST_NUMBER, len(entries) // _PARTS)
        self.bytes_limit = min(max(_LEAST_BYTES, total // _PARTS), _MOST_BYTES)

    def current_operation(self) -> Operation:
        """The operation of all gradients.  The set's number changes with the world."""
        settings, operation = self._settings, self._operation
        number = settings.process_set.process_set_id
        if operation is None or operation.process_set != number:
            predivide = settings.predivide
            operation = Operation(ALLREDUCE, number, settings.op, 0, 1.0 / predivide, predivide)
            self._operation = operation
        return operation

    def ask_for_the_end(self, backward: int) -> None:
        """Arranges a flush at the end of this backward()."""
        before_waiting.add(self)
        try:
            _engine.queue_callback(self._ended)
            self.backward = backward
        except RuntimeError:  # the hook was not called by a backward()
            self.flush()

    def submit_unread(self, entry: ParameterEntry) -> None:
        """Submits a gradient that waited here, and that C cannot read."""
        if entry.parameter.grad is None or entry.reducer is None:  # the script has cleared it, or the optimizer is gone
            self.refused(entry)
            return
        entry.passes_left += 1  # as before the hook
        entry.after(entry)

    def _ended(self) -> None:
        self.begun = False
        before_waiting.discard(self)
        self.flush()
