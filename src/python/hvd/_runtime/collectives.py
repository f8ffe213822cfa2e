# mypy: disable-error-code="no-any-return, arg-type"
"""The collective operations, written once for all frameworks.

A framework's package makes one ``Collectives(adapter)`` and publishes its bound methods.  The adapter describes
tensors, this file the operations.  submission.py submits tensors, and _native moves the bytes.  libhvd refuses
operations that a dtype does not support.

Each operation is written as its asynchronous form.  _one and _many make the blocking ones, with the same arguments.
For tensors that C can read (adapter.direct) there is a shorter way: ext/native/tensor_calls.c and group_calls.c do the
whole call.  These functions return None, without an effect, for tensors that need a copy, for rare types, and for wrong
arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable

from hvd import _native
from hvd._native import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
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
from hvd._runtime import world as _world
from hvd._runtime.arguments import member_names, reduce_op, scatter_op
from hvd._runtime.requests import HOST, U8, Operation, Request, View
from hvd._runtime.submission import Adapter, Handle, Submissions, T, before_waiting, hand_over
from hvd.process_sets import ProcessSet, global_process_set, number_of, root_of

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

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


def _one(
    start: Callable[Concatenate[Collectives[T], P], Handle], name: str, doc: str, result: str = "T"
) -> Callable[Concatenate[Collectives[T], P], T]:
    """The blocking form of an operation.  result: its type, for help().

    The function is compiled with the parameters of start: *args would add a third of a microsecond to each call.
    """
    parameters = ", ".join(start.__code__.co_varnames[: start.__code__.co_argcount])
    made: dict[str, Any] = {}
    text = f"def {name}({parameters}): return self.synchronize(start({parameters}))"
    exec(compile(text, "<hvdrun>", "exec"), {"start": start}, made)  # stacks and verdicts skip frames of this file
    call = made[name]
    call.__qualname__, call.__module__, call.__doc__ = f"Collectives.{name}", __name__, doc
    call.__defaults__, call.__annotations__ = start.__defaults__, {**start.__annotations__, "return": result}
    return call


def _many(
    start: Callable[Concatenate[Collectives[T], P], Handle], name: str, doc: str
) -> Callable[Concatenate[Collectives[T], P], list[T]]:
    """The blocking form of a grouped operation."""
    return _one(start, name, doc, "list[T]")  # type: ignore[return-value]


class Collectives(Submissions[T]):
    """All operations over one adapter.  Any thread; a handle is synchronised once."""

    # ---- allreduce

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
        if self._direct:
            handle = _native.allreduce_in_place(
                self._pending, tensor, name, average, op, prescale_factor, postscale_factor, process_set
            )
            if handle is not None:
                return handle
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
        if self._direct and average is None:
            found = _native.exchange_now(
                ALLREDUCE, tensor, name, op, prescale_factor, postscale_factor, process_set, before_waiting
            )
            if found is not None:
                return found
        return self.synchronize(
            self.allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
        )

    allreduce = _one(
        allreduce_async,
        "allreduce",
        "The reduction of tensor over all ranks, as a new tensor of the same shape.  See allreduce_.",
    )

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
        if self._direct:
            outs = list(tensors)
            found = _native.allreduce_group(outs, name, average, op, prescale_factor, postscale_factor, process_set)
            if found is not None:
                return self._note_group(outs, *found)
        operation = Operation(ALLREDUCE, number_of(process_set), reduce_op(op, average), 0, prescale_factor, postscale_factor)
        return self._submit_many(operation, tensors, member_names(name, len(tensors)), True, together=True)

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

    grouped_allreduce_ = _many(
        grouped_allreduce_async_,
        "grouped_allreduce_",
        "Like grouped_allreduce_async_, but blocking; returns the tensors.",
    )
    grouped_allreduce = _many(
        grouped_allreduce_async,
        "grouped_allreduce",
        "Like grouped_allreduce_async, but blocking; returns new tensors.",
    )

    # ---- broadcast

    def broadcast_async_(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """Overwrites tensor with root_rank's.  Returns a handle at once."""
        operation = Operation(BROADCAST, number_of(process_set), Sum, root_of(process_set, root_rank))
        return self._submit(operation, tensor, name, in_place=True)

    def broadcast_async(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """broadcast that returns a handle at once."""
        operation = Operation(BROADCAST, number_of(process_set), Sum, root_of(process_set, root_rank))
        return self._submit(operation, tensor, name, in_place=False)

    broadcast_ = _one(
        broadcast_async_,
        "broadcast_",
        "Overwrites tensor with root_rank's, and returns it.  The same shape and dtype on all ranks.",
    )
    broadcast = _one(
        broadcast_async,
        "broadcast",
        "A new tensor with root_rank's values.  The same shape and dtype on all ranks.",
    )

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
        if self._direct:
            found = _native.exchange_now(ALLGATHER, tensor, name, Sum, 1.0, 1.0, process_set, before_waiting)
            if found is not None:
                return found
        return self.synchronize(self.allgather_async(tensor, name, process_set))

    def grouped_allgather_async(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """allgather_async of several tensors that become ready and run together.  One handle for all."""
        operation = Operation(ALLGATHER, number_of(process_set))
        return self._gather(operation, tensors, member_names(name, len(tensors)), True)

    grouped_allgather = _many(
        grouped_allgather_async,
        "grouped_allgather",
        "Like grouped_allgather_async, but blocking; a list of gathered tensors.",
    )

    # ---- alltoall

    def alltoall_async(
        self, tensor: T, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle:
        """alltoall that returns a handle at once; synchronize(handle) returns (tensor, received splits)."""
        return self._alltoall(tensor, splits, name, process_set)

    def alltoall(
        self, tensor: T, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """Sends rows to all ranks, in order: splits[r] of them to rank r.  Without splits, each rank gets an equal
        part.

        Returns the rows that all ranks sent here, in the order of the ranks: [sum of received rows, ...].  With splits,
        returns a pair: these rows, and the number of rows from each rank.  Only the first dimension may differ between ranks.
        ValueError when the splits do not add up to the first dimension.
        """
        if self._direct and splits is None:
            found = _native.exchange_now(ALLTOALL, tensor, name, Sum, 1.0, 1.0, process_set, before_waiting)
            if found is not None:
                return found
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
        if self._direct and op.__class__ is int and op in (Average, Sum):
            found = _native.exchange_now(
                REDUCESCATTER, tensor, name, op, prescale_factor, postscale_factor, process_set, before_waiting
            )
            if found is not None:
                return found
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

    grouped_reducescatter = _many(
        grouped_reducescatter_async,
        "grouped_reducescatter",
        "Like grouped_reducescatter_async, but blocking.",
    )

    def join(self, device: int = -1, process_set: ProcessSet = global_process_set) -> int:
        """Declares that this rank has no more data.  Waits until all ranks have done so.  Returns the last rank to
        join.

        Until then this rank takes part in the others' operations with zeros, or no rows.  device is ignored.
        """
        group = number_of(process_set)
        if group is None:
            raise ValueError(f"join: this process set does not exist (anymore): {process_set}")
        hand_over()
        last = _requests.join(group)
        for forget in _world.when_joined:
            forget(group)
        return last

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Returns when all ranks of the set have called it."""
        hand_over()
        operation = Operation(BARRIER, number_of(process_set))
        _native.finish(_native.submit(Request(operation, None, (0, U8, (0,), HOST))))
