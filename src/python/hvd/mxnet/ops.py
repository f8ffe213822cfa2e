"""The operations on MXNet arrays, with Horovod's arguments.

priority: accepted as in Horovod.  There it orders the queue of MXNet's engine.  Here a call blocks until its operation has
ended, so there is no queue.  Grouped operations and DistributedTrainer exchange several arrays together.
Errors: ValueError for a wrong argument; HorovodInternalError when ranks disagree or a peer is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxnet.base import MXNetError

from hvd._native import Average
from hvd._runtime.collectives import Collectives
from hvd.mxnet._adapter import MxnetAdapter
from hvd.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "join",
    "reducescatter",
]

collectives: Collectives[Any] = Collectives(MxnetAdapter())
barrier = collectives.barrier
join = collectives.join


class _WrongSplits(MXNetError, ValueError):  # type: ignore[misc]
    pass


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """The reduction of an array over all ranks, as a new array.  The shape must be the same on all ranks.  Average by
    default."""
    return collectives.allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set)


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """allreduce in place; returns the array."""
    return collectives.allreduce_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """allreduce of several arrays that become ready and run together."""
    if not tensors:
        return []
    return collectives.grouped_allreduce(tensors, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """grouped_allreduce in place; returns the arrays."""
    if not tensors:
        return []
    return collectives.grouped_allreduce_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)


def allgather(tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates all ranks' arrays: [sum of dim 0, ...].  Only the first dimension may differ."""
    return collectives.allgather(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """allgather of several arrays that become ready and run together."""
    if not tensors:
        return []
    return collectives.grouped_allgather(tensors, name, process_set)


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """A new array with root_rank's values.  The same shape and dtype on all ranks."""
    return collectives.broadcast(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: Any, root_rank: int, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Overwrites an array with root_rank's, and returns it."""
    return collectives.broadcast_(tensor, root_rank, name, process_set)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows to all ranks: splits[r] of them to rank r, or equal parts.  With splits: (array, received splits).

    Wrong splits are a ValueError that is also an MXNetError, since scripts for Horovod catch that.
    """
    rows = splits.asnumpy() if hasattr(splits, "asnumpy") else splits
    try:
        return collectives.alltoall(tensor, rows, name, process_set)
    except ValueError as error:
        raise _WrongSplits(str(error)) from None


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """The sum (or average) of an array over all ranks, divided among them: [rows of this rank, ...]."""
    return collectives.reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor)


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """reducescatter of several arrays that become ready and run together."""
    if not tensors:
        return []
    return collectives.grouped_reducescatter(tensors, name, op, process_set, prescale_factor, postscale_factor)
