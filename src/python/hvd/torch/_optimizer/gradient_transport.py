"""Gives an optimizer's gradients to the runtime, and stores the results.

reducer.py decides which gradients travel, and when.  The hooks submit ordinary gradients without this file, by the same
rules (ext/native/gradients/gradient.c).
"""

from __future__ import annotations

from typing import Any

import torch

from hvd import _native
from hvd._runtime.requests import HOST
from hvd.process_sets import ProcessSet
from hvd.torch._optimizer.outbox import Outbox
from hvd.torch._optimizer.parameter_entries import ParameterEntry, inverse
from hvd.torch.compression import Compression
from hvd.torch.ops import collectives, sparse_allreduce_async

# Owns the memory of operations in progress, also when the optimizer is gone before they end.
_pending = collectives._pending


class Settings:
    """The arguments of DistributedOptimizer."""

    def __init__(
        self,
        compression: Any,
        passes: int,
        op: int,
        predivide: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.compression = compression
        self.passes = passes
        self.op = op
        self.predivide = predivide
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set


class GradientTransport:
    """The operations on the gradients of one optimizer."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.compression = settings.compression
        self._outbox = Outbox(settings, self._end)

    def _request(self, entry: ParameterEntry) -> Any:
        """Returns the request for an entry, with the gradient's own memory if possible."""
        gradient: Any = entry.parameter.grad
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        if self.compression is not Compression.none:
            gradient, entry.context = self.compression.compress(gradient)
        if entry.order is None or gradient.dim() != len(entry.order):
            entry.work, view = collectives.dense(gradient)
        else:  # all ranks send elements in the parameter's memory order, mostly without a copy
            lying = gradient.permute(entry.order)
            sent, view = collectives.dense(lying)
            entry.work = gradient if sent is lying else sent.permute(inverse(entry.order))
        if view[3] != HOST:
            self._outbox.devices.add(view[3])  # type: ignore[arg-type]
        operation = self._outbox.current_operation()
        entry.gradient = entry.parameter.grad
        return operation, entry.name, view, view[0], None  # a Request

    def _travels_sparse(self, entry: ParameterEntry) -> bool:
        return not (self.settings.sparse_as_dense or entry.group)

    def _submit(self, entry: ParameterEntry) -> None:
        """Puts a dense gradient in the outbox; submits a sparse one at once."""
        gradient = entry.parameter.grad
        if gradient is not None and gradient.is_sparse and self._travels_sparse(entry):
            entry.gradient = gradient
            # Indices and values go by allgather.
            entry.sparse = sparse_allreduce_async(gradient, entry.name, self.settings.op, self.settings.process_set)
            return
        self._outbox.add(entry, self._request(entry))

    def _submit_group(self, entries: list[ParameterEntry]) -> None:
        try:
            handles = _native.submit_many([self._request(entry) for entry in entries], True)
        except BaseException:
            for entry in entries:
                self._end(entry)  # so that synchronize() submits them
            raise
        for entry, handle in zip(entries, handles):
            entry.handle = handle
            _pending[handle] = entry.work

    def _complete(self, entries: list[ParameterEntry]) -> None:
        """Waits for the operations in progress, and stores their results."""
        elsewhere = _native.finish_gradients(entries)
        collectives._settle(self._outbox.devices)
        for entry in elsewhere:
            self._store(entry)

    def _store(self, entry: ParameterEntry) -> None:
        into: Any = entry.into()
        if entry.sparse:
            reduced = entry.sparse()
            if into is not None:
                entry.give(reduced.to(into.dtype))
        elif into is not None and entry.work is not into:
            reduced = self.compression.decompress(entry.work, entry.context)
            if into.is_sparse:
                entry.give(reduced.to(into.device).to_sparse(into.sparse_dim()))
            else:
                with torch.no_grad():
                    into.copy_(reduced)

    @staticmethod
    def _end(entry: ParameterEntry, ended: bool = True) -> None:
        if entry.kept and not entry.added:  # torch.autograd.grad() has only read it
            entry.parameter.grad = entry.gradient
        if ended:
            _pending.pop(entry.handle, None)
        entry.clear()


def zeros_for(parameter: torch.Tensor, sparse: bool) -> torch.Tensor:
    """A gradient of zeros."""
    if not sparse:
        return torch.zeros_like(parameter)
    indices = torch.zeros((1, 0), dtype=torch.int64, device=parameter.device)
    values = parameter.new_zeros((0, *parameter.shape[1:]))
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
