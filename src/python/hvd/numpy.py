# mypy: disable-error-code="no-any-return, arg-type"
"""The operations on NumPy arrays, with the names of hvd.torch, and without gradients.

Buffers and DLPack tensors of other frameworks are used without a copy.  Buffers are memoryview, array.array, bytearray and
mmap, and bytes for inputs.  Operations in place return their argument.  Other results are arrays.  bfloat16, float8_e4m3fn and
float8_e5m2 are those of ml_dtypes.  Complex numbers can be added, averaged and multiplied.  Other 8-bit floats and dates can be
gathered, broadcast and sent, not reduced.
"""

from __future__ import annotations

from typing import Any

from hvd import agreement, elastic
from hvd._runtime.collectives import Collectives
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd._runtime.numpy_adapter import NumpyAdapter
from hvd._runtime.objects import allgather_object, broadcast_object

_collectives: Collectives[Any] = Collectives(NumpyAdapter())

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
    *_shared,
    "agreement",
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
