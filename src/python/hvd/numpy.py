# mypy: disable-error-code="no-any-return, arg-type"
"""The operations on NumPy arrays, with the names of hvd.torch, and without gradients.

Buffers (memoryview, array.array, bytearray, mmap; bytes if nothing is written) and DLPack tensors of other frameworks are
used without a copy; operations in place return them.  Other results are arrays.  bfloat16, float8_e4m3fn and float8_e5m2 are
those of ml_dtypes.  Unsigned integers of 32 and 64 bits, complex numbers, other 8-bit floats and dates can be gathered,
broadcast and sent, not reduced.
"""

from __future__ import annotations

from typing import Any

from hvd import elastic
from hvd._runtime.collectives import Collectives
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd._runtime.numpy_adapter import NumpyAdapter
from hvd._runtime.objects import allgather_object, broadcast_object

_collectives: Collectives[Any] = Collectives(NumpyAdapter())
_reading: Collectives[Any] = Collectives(NumpyAdapter(writes=False), _collectives)
_moving: Collectives[Any] = Collectives(NumpyAdapter(reduces=False, writes=False), _collectives)
_moving_in_place: Collectives[Any] = Collectives(NumpyAdapter(reduces=False), _collectives)

allreduce = _reading.allreduce
allreduce_ = _collectives.allreduce_
allreduce_async = _reading.allreduce_async
allreduce_async_ = _collectives.allreduce_async_
grouped_allreduce = _reading.grouped_allreduce
grouped_allreduce_ = _collectives.grouped_allreduce_
grouped_allreduce_async = _reading.grouped_allreduce_async
grouped_allreduce_async_ = _collectives.grouped_allreduce_async_
allgather = _moving.allgather
allgather_async = _moving.allgather_async
grouped_allgather = _moving.grouped_allgather
grouped_allgather_async = _moving.grouped_allgather_async
alltoall = _moving.alltoall
alltoall_async = _moving.alltoall_async
broadcast = _moving.broadcast
broadcast_ = _moving_in_place.broadcast_
broadcast_async = _moving.broadcast_async
broadcast_async_ = _moving_in_place.broadcast_async_
reducescatter = _reading.reducescatter
reducescatter_async = _reading.reducescatter_async
grouped_reducescatter = _reading.grouped_reducescatter
grouped_reducescatter_async = _reading.grouped_reducescatter_async
barrier = _collectives.barrier
join = _collectives.join
poll = _collectives.poll
synchronize = _collectives.synchronize

__all__ = [
    *_shared,
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
    "elastic",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]
