# mypy: disable-error-code="no-any-return, arg-type"
"""The operations on NumPy arrays, with the names of hvd.torch.  No gradients, no bfloat16 (NumPy has none)."""

from __future__ import annotations

from typing import Any

import numpy as _np

from hvd._collectives import DTYPES as _DTYPES
from hvd._collectives import Adasum, Average, Collectives, Max, Min, Product, Sum, View
from hvd._objects import allgather_object, broadcast_object
from hvd._stop import should_stop
from hvd._world import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_threads_supported,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from hvd.exceptions import HorovodInternalError
from hvd.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

Array = _np.ndarray[Any, Any]
_CODES = {_np.dtype(name): code for name, code in _DTYPES.items() if name != "bfloat16"}


class _Capsule:
    """What numpy.from_dlpack wants to be given."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the host


class NumpyAdapter:
    """Adapter[numpy.ndarray]."""

    framework = "numpy"

    def view(self, tensor: Array) -> View | None:
        if not isinstance(tensor, _np.ndarray):
            raise TypeError(f"a numpy.ndarray is needed, not a {type(tensor).__name__}")
        code = _CODES.get(tensor.dtype)
        if code is None:
            if tensor.dtype.newbyteorder("=") in _CODES:
                return None  # the other byte order
            raise ValueError(f"arrays of {tensor.dtype} cannot be exchanged (possible: {', '.join(map(str, _CODES))})")
        flags = tensor.flags
        if not (flags.c_contiguous and flags.writeable and flags.aligned):
            return None
        return tensor.ctypes.data, code, tensor.shape, -1

    def pack(self, tensor: Array) -> Array:
        return _np.array(tensor, dtype=tensor.dtype.newbyteorder("="), order="C", copy=True)

    def like(self, tensor: Array) -> Array:
        return _np.empty(tensor.shape, tensor.dtype)

    def assign(self, into: Array, value: Array) -> None:
        into[...] = value

    def integers(self, values: tuple[int, ...], like: Any) -> Array:
        integer = isinstance(like, _np.ndarray) and like.dtype.kind in "iu"
        return _np.array(values, dtype=like.dtype if integer else _np.int32)

    def adopt(self, capsule: Any, shape: tuple[int, ...], like: Array) -> Array:
        flat = _np.from_dlpack(_Capsule(capsule))
        tensor = flat.view(like.dtype.newbyteorder("=")).reshape(shape)
        return tensor if tensor.flags.writeable else tensor.copy()  # before 2.1, NumPy's DLPack arrays are read-only


_collectives: Collectives[Array] = Collectives(NumpyAdapter())

allreduce = _collectives.allreduce
allreduce_ = _collectives.allreduce_
allreduce_async = _collectives.allreduce_async
allreduce_async_ = _collectives.allreduce_async_
grouped_allreduce = _collectives.grouped_allreduce
grouped_allreduce_ = _collectives.grouped_allreduce_
grouped_allreduce_async = _collectives.grouped_allreduce_async
grouped_allreduce_async_ = _collectives.grouped_allreduce_async_
allgather = _collectives.allgather
allgather_async = _collectives.allgather_async
grouped_allgather = _collectives.grouped_allgather
grouped_allgather_async = _collectives.grouped_allgather_async
alltoall = _collectives.alltoall
alltoall_async = _collectives.alltoall_async
broadcast = _collectives.broadcast
broadcast_ = _collectives.broadcast_
broadcast_async = _collectives.broadcast_async
broadcast_async_ = _collectives.broadcast_async_
reducescatter = _collectives.reducescatter
reducescatter_async = _collectives.reducescatter_async
grouped_reducescatter = _collectives.grouped_reducescatter
grouped_reducescatter_async = _collectives.grouped_reducescatter_async
barrier = _collectives.barrier
join = _collectives.join
poll = _collectives.poll
synchronize = _collectives.synchronize

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_threads_supported",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "should_stop",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
