# mypy: disable-error-code="no-any-return"
"""The operations whose cost counts most, for tensors that C can read: C does the whole call.

ext/native/tensor_calls.c and group_calls.c do them.  Where one gives None it has done nothing, and the common code of
hvd/_runtime/collectives.py does the call: for tensors that need a copy, for rare types, and for wrong arguments, which it
refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hvd import _native
from hvd._native import ALLGATHER, ALLTOALL, REDUCESCATTER, Average, Sum
from hvd._runtime.collectives import Collectives
from hvd._runtime.submission import Handle, _Pending, before_waiting
from hvd.process_sets import ProcessSet, global_process_set

Tensor = torch.Tensor


class DirectCalls(Collectives[Tensor]):
    """Collectives over a TorchAdapter."""

    def allreduce_async_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """allreduce_ that returns a handle at once; the tensor must be left alone until synchronize(handle)."""
        handle = _native.allreduce_in_place(
            self._pending, tensor, name, average, op, prescale_factor, postscale_factor, process_set
        )
        if handle is not None:
            return handle
        return super().allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)

    def synchronize(self, handle: Any) -> Any:
        """Waits for the operation and returns its result: a tensor, or a list of them for a grouped one.

        A handle that was synchronised already gives None.
        """
        result = _native.finish_tensor(self._pending, handle, before_waiting)
        return super().synchronize(handle) if result is None else result

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """allreduce_async_ of several tensors that become ready, and run, together.  One handle for all."""
        outs = list(tensors)
        found = _native.allreduce_group(outs, name, average, op, prescale_factor, postscale_factor, process_set)
        if found is None:
            return super().grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
        handles, devices = found

        def result() -> list[Tensor]:
            _native.finish_many(handles)
            self._settle(devices)
            return outs

        self._pending[handles[0]] = _Pending(handles, outs, result, devices)
        return handles[0]

    def allgather(self, tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
        """All ranks' tensors, one after the other: [sum of dim 0, ...].  Only the first dimension may differ."""
        found = _native.exchange_now(ALLGATHER, tensor, name, Sum, 1.0, 1.0, process_set, before_waiting)
        return super().allgather(tensor, name, process_set) if found is None else found

    def alltoall(
        self, tensor: Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """Sends rows to all ranks: splits[r] of them to rank r, in order, or equal parts when there are no splits.

        Returns what all ranks sent here, in the order of the ranks: [sum of received rows, ...]; with splits a pair of
        that and how many rows came from each rank.
        """
        if splits is None:
            found = _native.exchange_now(ALLTOALL, tensor, name, Sum, 1.0, 1.0, process_set, before_waiting)
            if found is not None:
                return found
        return super().alltoall(tensor, splits, name, process_set)

    def reducescatter(
        self,
        tensor: Tensor,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Tensor:
        """The sum (or average) of tensor over all ranks, divided among them: [rows of this rank, ...]."""
        if op.__class__ is int and op in (Average, Sum):
            found = _native.exchange_now(
                REDUCESCATTER, tensor, name, op, prescale_factor, postscale_factor, process_set, before_waiting
            )
            if found is not None:
                return found
        return super().reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor)
