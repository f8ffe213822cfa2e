# mypy: disable-error-code="no-any-return, arg-type"
"""The collective operations, written once for all frameworks.

A framework's package makes one ``Collectives(adapter)`` and publishes its bound methods.  The adapter describes tensors, this
file the operations.  _submission.py submits tensors, and _native moves the bytes.

Every blocking operation is its asynchronous one and synchronize().
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvd import _native
from hvd._native import (
    ALLGATHER,
    ALLREDUCE,
    BARRIER,
    BROADCAST,
    DTYPES,
    REDUCESCATTER,
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
)
from hvd._runtime import requests as _requests
from hvd._runtime.arguments import member_names, reduce_op, scatter_op
from hvd._runtime.requests import HOST, U8, Operation, Request, View
from hvd._runtime.submission import Adapter, Handle, Submissions, T, hand_over
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
        return self.synchronize(
            self.allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
        )

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
        """allreduce_ that returns a handle at once; do not touch the tensor until synchronize(handle)."""
        operation = Operation(ALLREDUCE, number_of(process_set), reduce_op(op, average), 0, prescale_factor, postscale_factor)
        return self._submit(operation, tensor, name, in_place=True)

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
        operation = Operation(ALLREDUCE, number_of(process_set), reduce_op(op, average), 0, prescale_factor, postscale_factor)
        return self._submit(operation, tensor, name, in_place=False)

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
        return self.synchronize(self.allreduce_async(tensor, average, name, op, prescale_factor, postscale_factor, process_set))

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
        """allreduce_async_ of several tensors that become ready and run together.  One handle for all."""
        operation = Operation(ALLREDUCE, number_of(process_set), reduce_op(op, average), 0, prescale_factor, postscale_factor)
        return self._submit_many(operation, tensors, member_names(name, len(tensors)), True, together=True)

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
        """Like grouped_allreduce_async_, but blocking; returns the tensors."""
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
        operation = Operation(ALLREDUCE, number_of(process_set), reduce_op(op, average), 0, prescale_factor, postscale_factor)
        return self._submit_many(operation, tensors, member_names(name, len(tensors)), False, together=True)

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
        """Like grouped_allreduce_async, but blocking; returns new tensors."""
        return self.synchronize(
            self.grouped_allreduce_async(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
        )

    # ---- broadcast

    def broadcast_async_(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """Overwrites tensor with root_rank's.  Returns a handle at once."""
        operation = Operation(BROADCAST, number_of(process_set), Sum, root_of(process_set, root_rank))
        return self._submit(operation, tensor, name, in_place=True)

    def broadcast_(self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> T:
        """Overwrites tensor with root_rank's, and returns it.  The same shape and dtype on all ranks."""
        return self.synchronize(self.broadcast_async_(tensor, root_rank, name, process_set))

    def broadcast_async(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """broadcast that returns a handle at once."""
        operation = Operation(BROADCAST, number_of(process_set), Sum, root_of(process_set, root_rank))
        return self._submit(operation, tensor, name, in_place=False)

    def broadcast(self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> T:
        """A new tensor with root_rank's values.  The same shape and dtype on all ranks."""
        return self.synchronize(self.broadcast_async(tensor, root_rank, name, process_set))

    def broadcast_many_async_(
        self,
        tensors: Sequence[T],
        root_rank: int,
        names: Sequence[str | None],
        process_set: ProcessSet = global_process_set,
    ) -> Handle:
        """broadcast_async_ of many tensors in one call, with one handle.  synchronize returns the list, or the only tensor."""
        operation = Operation(BROADCAST, number_of(process_set), Sum, root_of(process_set, root_rank))
        if not tensors:
            return 0  # nothing to wait for
        return self._submit_many(operation, tensors, names, True, many=len(tensors) > 1)

    # ---- allgather

    def allgather_async(self, tensor: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> Handle:
        """allgather that returns a handle at once."""
        return self._gather(Operation(ALLGATHER, number_of(process_set)), [tensor], [name], False)

    def allgather(self, tensor: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> T:
        """Concatenates all ranks' tensors: [sum of dim 0, ...].  Only the first dimension may differ."""
        return self.synchronize(self.allgather_async(tensor, name, process_set))

    def grouped_allgather_async(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """allgather_async of several tensors that become ready and run together.  One handle for all."""
        operation = Operation(ALLGATHER, number_of(process_set))
        return self._gather(operation, tensors, member_names(name, len(tensors)), True)

    def grouped_allgather(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list[T]:
        """Like grouped_allgather_async, but blocking; a list of gathered tensors."""
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

        Returns the rows that all ranks sent here, in the order of the ranks: [sum of received rows, ...].  With splits,
        returns a pair: these rows, and the number of rows from each rank.  Only the first dimension may differ between ranks.
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
        operation = Operation(REDUCESCATTER, number_of(process_set), scatter_op(op), 0, prescale_factor, postscale_factor)
        return self._gather(operation, [tensor], [name], False)

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
        """reducescatter_async of several tensors that become ready and run together."""
        operation = Operation(REDUCESCATTER, number_of(process_set), scatter_op(op), 0, prescale_factor, postscale_factor)
        return self._gather(operation, tensors, member_names(name, len(tensors)), True)

    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[T]:
        """Like grouped_reducescatter_async, but blocking."""
        return self.synchronize(
            self.grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor)
        )

    def join(self, device: int = -1, process_set: ProcessSet = global_process_set) -> int:
        """Declares that this rank has no more data, and waits until all ranks have done so; returns the last rank to join.

        Until then this rank takes part in the others' operations with zeros, or no rows.  device is ignored.
        """
        group = number_of(process_set)
        if group is None:
            raise ValueError(f"join: this process set does not exist (anymore): {process_set}")
        hand_over()
        return _requests.join(group)

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Returns when all ranks of the set have called it."""
        hand_over()
        operation = Operation(BARRIER, number_of(process_set))
        _native.finish(_native.submit(Request(operation, None, (0, U8, (0,), HOST))))
