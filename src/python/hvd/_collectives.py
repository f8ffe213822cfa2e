# mypy: disable-error-code="no-any-return, arg-type"
"""The collective operations, written once for all frameworks.

A framework's package makes one ``Collectives(adapter)`` and publishes its bound
methods.  The adapter knows what a tensor is; this file knows what the
operations are; _submission.py hands tensors over; _native moves the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvd import _native
from hvd._submission import (
    ALLREDUCE,
    BARRIER,
    BROADCAST,
    DTYPES,
    REDUCESCATTER,
    Adapter,
    Adasum,
    Average,
    Handle,
    Max,
    Min,
    Product,
    Submissions,
    Sum,
    T,
    View,
    member_name,
    reduce_op,
    scatter_op,
)
from hvd.process_sets import ProcessSet, global_process_set, number_of, root_of

__all__ = [
    "DTYPES",
    "Adapter",
    "Adasum",
    "Average",
    "Collectives",
    "Handle",
    "Max",
    "Min",
    "Product",
    "Sum",
    "View",
    "reduce_op",
]


class Collectives(Submissions[T]):
    """All operations over one adapter.  Any thread; a handle is synchronised once."""

    # ---- allreduce

    def allreduce_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Reduces tensor over all ranks, in place, and returns it.  Any shape and dtype, the same on all ranks.

        Errors: ValueError for a wrong argument; HorovodInternalError when ranks disagree or a peer is lost.
        """
        view = self._view(tensor)
        if view is None:
            handle = self.allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
            return self.synchronize(handle)
        address, dtype, shape, device = view
        _native.run(
            ALLREDUCE,
            dtype,
            reduce_op(op, average),
            name,
            shape,
            0,
            number_of(process_set),
            device,
            prescale_factor,
            postscale_factor,
            address,
            address,
            tensor,
        )
        self._settle()
        return tensor

    def allreduce_async_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """allreduce_ that returns a handle at once; the tensor must be left alone until synchronize(handle)."""
        view = self._view(tensor)
        work = tensor
        if view is None:
            work, view = self._staged(tensor)
        address, dtype, shape, device = view
        handle = _native.submit(
            ALLREDUCE,
            dtype,
            reduce_op(op, average),
            name,
            shape,
            0,
            number_of(process_set),
            device,
            prescale_factor,
            postscale_factor,
            address,
            address,
        )
        self._pending[handle] = (tensor, tensor) if work is tensor else self._copying_back([handle], [work], [tensor], False)
        return handle

    def allreduce_async(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """allreduce that returns a handle at once; synchronize(handle) returns a new tensor."""
        return self._into_new(
            ALLREDUCE, tensor, name, reduce_op(op, average), 0, prescale_factor, postscale_factor, process_set
        )

    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """The reduction of tensor over all ranks, as a new tensor of the same shape.  See allreduce_."""
        reduce = reduce_op(op, average)
        return self._run_into_new(ALLREDUCE, tensor, name, reduce, 0, prescale_factor, postscale_factor, process_set)

    # ---- grouped allreduce

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """allreduce_async_ of several tensors that become ready, and run, together.  One handle for all."""
        return self._group(
            ALLREDUCE, tensors, True, name, reduce_op(op, average), prescale_factor, postscale_factor, process_set
        )

    def grouped_allreduce_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[T]:
        """grouped_allreduce_async_ that waits; returns the tensors."""
        return self.synchronize(
            self.grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
        )

    def grouped_allreduce_async(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """grouped_allreduce_async_ into new tensors."""
        return self._group(
            ALLREDUCE, tensors, False, name, reduce_op(op, average), prescale_factor, postscale_factor, process_set
        )

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[T]:
        """grouped_allreduce_async that waits; returns new tensors."""
        return self.synchronize(
            self.grouped_allreduce_async(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
        )

    # ---- broadcast

    def broadcast_async_(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """Overwrites tensor with root_rank's.  Returns a handle at once."""
        return self.broadcast_many_async_([tensor], root_rank, [name], process_set)

    def broadcast_(self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> T:
        """Overwrites tensor with root_rank's, and returns it.  The same shape and dtype on all ranks."""
        view = self._view(tensor)
        if view is None:
            return self.synchronize(self.broadcast_async_(tensor, root_rank, name, process_set))
        address, dtype, shape, device = view
        group, root = number_of(process_set), root_of(process_set, root_rank)
        _native.run(BROADCAST, dtype, Sum, name, shape, root, group, device, 1.0, 1.0, address, address, tensor)
        self._settle()
        return tensor

    def broadcast_async(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """broadcast that returns a handle at once."""
        return self._into_new(BROADCAST, tensor, name, Sum, root_of(process_set, root_rank), 1.0, 1.0, process_set)

    def broadcast(self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> T:
        """A new tensor with root_rank's values.  The same shape and dtype on all ranks."""
        root = root_of(process_set, root_rank)
        return self._run_into_new(BROADCAST, tensor, name, Sum, root, 1.0, 1.0, process_set)

    def broadcast_many_async_(
        self,
        tensors: Sequence[T],
        root_rank: int,
        names: Sequence[str | None],
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """broadcast_async_ of many tensors in one call; one handle.  synchronize returns the list, or the only one."""
        group, root = number_of(process_set), root_of(process_set, root_rank)
        works, requests = [], []
        for tensor, name in zip(tensors, names):
            view = self._view(tensor)
            work = tensor
            if view is None:
                work, view = self._staged(tensor)
            address, dtype, shape, device = view
            works.append(work)
            requests.append((BROADCAST, dtype, Sum, name, shape, root, group, device, 1.0, 1.0, address, address))
        if not requests:
            return 0  # nothing to wait for
        handles = _native.submit_many(requests, 0)
        self._pending[handles[0]] = self._copying_back(handles, works, tensors, len(requests) > 1)
        return handles[0]

    # ---- allgather

    def allgather_async(self, tensor: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> Handle:
        """allgather that returns a handle at once."""
        return self._gather([tensor], [name], process_set, False)

    def allgather(self, tensor: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> T:
        """All ranks' tensors, one after the other: [sum of dim 0, ...].  Only the first dimension may differ."""
        return self.synchronize(self.allgather_async(tensor, name, process_set))

    def grouped_allgather_async(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """allgather_async of several tensors that become ready, and run, together.  One handle for all."""
        return self._gather(tensors, [member_name(name, i) for i in range(len(tensors))], process_set, True)

    def grouped_allgather(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list[T]:
        """grouped_allgather_async that waits; a list of gathered tensors."""
        return self.synchronize(self.grouped_allgather_async(tensors, name, process_set))

    # ---- alltoall

    def alltoall_async(
        self, tensor: T, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """alltoall that returns a handle at once; synchronize(handle) returns (tensor, received splits)."""
        return self._alltoall(tensor, splits, name, process_set)

    def alltoall(
        self, tensor: T, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """Sends rows to all ranks: splits[r] of them to rank r, in order, or equal parts when there are no splits.

        Returns what all ranks sent here, in the order of the ranks: [sum of received rows, ...]; with splits a pair of
        that and how many rows came from each rank.  Only the first dimension may differ between ranks.
        ValueError when the splits do not add up to the first dimension.
        """
        out, received = self.synchronize(self.alltoall_async(tensor, splits, name, process_set))
        return out if splits is None else (out, received)

    # ---- reducescatter

    def reducescatter_async(
        self,
        tensor: T,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle:
        """reducescatter that returns a handle at once."""
        reduce = scatter_op(op)
        return self._gather([tensor], [name], process_set, False, REDUCESCATTER, reduce, prescale_factor, postscale_factor)

    def reducescatter(
        self,
        tensor: T,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> T:
        """The sum (or average) of tensor over all ranks, divided among them: [rows of this rank, ...].

        The first (rows mod size) ranks get one row more.  op: Average or Sum.  A scalar is a ValueError.
        """
        return self.synchronize(self.reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor))

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle:
        """reducescatter_async of several tensors that become ready, and run, together."""
        names = [member_name(name, i) for i in range(len(tensors))]
        reduce = scatter_op(op)
        return self._gather(tensors, names, process_set, True, REDUCESCATTER, reduce, prescale_factor, postscale_factor)

    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[T]:
        """grouped_reducescatter_async that waits."""
        return self.synchronize(
            self.grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor)
        )

    def join(self, device: int = -1, process_set: ProcessSet = global_process_set) -> int:
        """Says that this rank has no more data, and waits until all have; returns the last rank to join.

        Until then this rank takes part in the others' operations with zeros, or no rows.  device is not used.
        """
        group = number_of(process_set)
        if group is None:
            raise ValueError(f"join: this process set does not exist (anymore): {process_set}")
        return _native.join(group)

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Returns when all ranks of the set have called it."""
        group = number_of(process_set)
        _native.run(BARRIER, DTYPES["uint8"], Sum, None, (0,), 0, group, -1, 1.0, 1.0, 0, 0, None)
