"""The operations on JAX arrays: outside jit, inside it, differentiated and batched.

Shapes are those of the arrays.  All operations support the dtypes u8 i8 u16 i16 i32 i64 f16 bf16 f32 f64 bool float8_e4m3fn
float8_e5m2 u32 u64.  All but Min, Max and Adasum also support c64 c128.  Outside jit a call returns its result (the _async ones
return handles).  Inside jit the operation is part of the program.  Operations run with the program, in the same order on every
rank.

Errors: ValueError for a wrong argument and HorovodInternalError when ranks disagree or a peer is lost.  Inside jit the latter
is JAX's own JaxRuntimeError, raised at the use of a result.  Its text begins with FAILED_PRECONDITION (ranks disagree) or
ABORTED (a peer is lost).

Gradients, forward and reverse, are those of the sum of all ranks' losses.  The gradient of an allreduce is an allreduce, of an
allgather a reducescatter, of a reducescatter an allgather.  The gradient of a broadcast is a reduction to the root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hvd._native import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    REDUCESCATTER,
    Average,
)
from hvd._runtime.arguments import reduce_op, scatter_op
from hvd.jax import _arrays, _primitive
from hvd.jax._primitive import Operation
from hvd.jax.compression import Compression, Compressor
from hvd.process_sets import ProcessSet, global_process_set, root_of

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]

poll = _arrays.collectives.poll
join = _arrays.collectives.join

# For each handle: the arrays of the call, and the function that makes its result.
_finishers: dict[int, Callable[[Any], Any]] = {}


def _pending(handle: int, finish: Callable[[Any], Any]) -> int:
    _finishers[handle] = finish
    return handle


def synchronize(handle: Any) -> Any:
    """Waits for an _async operation and returns its result: an array, or a list of them for a grouped one."""
    try:
        result = _arrays.collectives.synchronize(handle)
    except BaseException:
        if not _arrays.collectives.is_pending(handle):
            _finishers.pop(handle, None)
        raise
    finish = _finishers.pop(handle, None)
    return result if finish is None or result is None else finish(result)


def _one(like: Any) -> Callable[[Any], Any]:
    return lambda result: _arrays.to_jax(result, like)


def _many(likes: Sequence[Any]) -> Callable[[Any], Any]:
    return lambda results: _arrays.to_jax_all(results, likes)


def _outside_jit(arrays: Sequence[Any], what: str) -> list[Any]:
    if _primitive.traced(arrays):
        raise TypeError(
            f"{what} gives a handle, which a traced function cannot return: inside jit call {what[:-6]}, which does not block"
        )
    return [_arrays.to_numpy(array) for array in arrays]


def _compressed(operation: Operation, tensors: Sequence[Any], compression: type[Compressor]) -> list[Any]:
    pairs = [compression.compress(tensor) for tensor in tensors]
    given = [small if hasattr(small, "dtype") else jnp.asarray(small) for small, _ in pairs]
    outs = _primitive.bind(operation, given)
    return [compression.decompress(out, ctx) for out, (_, ctx) in zip(outs, pairs)]


def _grouped(tensors: Sequence[Any]) -> None:
    if not tensors:
        raise ValueError("a grouped operation needs at least one array")


# ---- allreduce


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of an array over all ranks, with its shape and dtype; Average when no op is given.

    Min, Max, Product and Adasum have no gradient; Adasum no vmap either.
    """
    call = Operation(ALLREDUCE, name, process_set, reduce_op(op, average), 0, False, prescale_factor, postscale_factor)
    _arrays_only([tensor])
    return _compressed(call, [tensor], compression)[0]


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """allreduce outside jit that returns a handle at once."""
    (value,) = _outside_jit([tensor], "allreduce_async")
    handle = _arrays.collectives.allreduce_async(value, average, name, op, prescale_factor, postscale_factor, process_set)
    return _pending(handle, _one(tensor))


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """allreduce of several arrays that become ready and run together."""
    _grouped(tensors)
    _arrays_only(tensors)
    call = Operation(ALLREDUCE, name, process_set, reduce_op(op, average), 0, True, prescale_factor, postscale_factor)
    return _compressed(call, tensors, compression)


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """grouped_allreduce outside jit that returns a handle at once."""
    values = _outside_jit(tensors, "grouped_allreduce_async")
    handle = _arrays.collectives.grouped_allreduce_async(
        values, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return _pending(handle, _many(tensors))


def _arrays_only(tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        if not isinstance(tensor, jax.core.Tracer):
            _arrays.to_numpy(tensor)  # TypeError for anything but arrays


# ---- broadcast


def broadcast(tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """root_rank's values, in a new array; the same shape and dtype on all ranks."""
    _arrays_only([tensor])
    root_of(process_set, root_rank)
    if not 0 <= root_rank < (global_process_set.size() or root_rank + 1):
        raise ValueError(f"broadcast: root_rank is {root_rank}, but there are {global_process_set.size()} ranks")
    return _primitive.bind(Operation(BROADCAST, name, process_set, root_rank=root_rank), [_asarray(tensor)])[0]


def broadcast_async(tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """broadcast outside jit that returns a handle at once."""
    (value,) = _outside_jit([tensor], "broadcast_async")
    return _pending(_arrays.collectives.broadcast_async(value, root_rank, name, process_set), _one(tensor))


def _asarray(tensor: Any) -> Any:
    return tensor if hasattr(tensor, "dtype") else jnp.asarray(tensor)


# ---- allgather


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates all ranks' arrays: [sum of dim 0, ...].  A scalar: [size].

    Outside jit the first dimension may differ between ranks.  Inside it may not: a program's shapes are fixed.
    """
    return grouped_allgather([tensor], name, process_set, _group=False)[0]


def allgather_async(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """allgather outside jit that returns a handle at once."""
    _outside_jit([tensor], "allgather_async")
    return _pending(_arrays.collectives.allgather_async(_arrays.rows(tensor), name, process_set), _one(tensor))


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set, *, _group: bool = True
) -> list[Any]:
    """allgather of several arrays that become ready and run together."""
    _grouped(tensors)
    _arrays_only(tensors)
    if _primitive.traced(tensors):
        call = Operation(ALLGATHER, name, process_set, group=_group)
        return _primitive.bind(call, [_asarray(tensor) for tensor in tensors])
    if _group:
        return synchronize(grouped_allgather_async(tensors, name, process_set))  # type: ignore[no-any-return]
    return [synchronize(allgather_async(tensors[0], name, process_set))]


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """grouped_allgather outside jit that returns a handle at once."""
    _outside_jit(tensors, "grouped_allgather_async")
    values = [_arrays.rows(tensor) for tensor in tensors]
    return _pending(_arrays.collectives.grouped_allgather_async(values, name, process_set), _many(tensors))


# ---- alltoall


def alltoall(tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Sends splits[r] rows to each rank r, in order.  Without splits, sends equal parts.

    Returns the rows that all ranks sent here, in the order of the ranks.  With splits, returns a pair: these rows, and the
    number of rows from each rank (NumPy, int32).  Inside jit only equal parts are possible: a program's shapes are fixed.
    """
    _arrays_only([tensor])
    if not _primitive.traced([tensor]):
        return synchronize(alltoall_async(tensor, splits, name, process_set, _pair=splits is not None))
    if splits is not None:
        raise ValueError(
            "alltoall with splits cannot be compiled, since the other ranks' splits decide its shape: call it outside jit,"
            " or send equal parts (pad them) without splits"
        )
    return _primitive.bind(Operation(ALLTOALL, name, process_set), [_asarray(tensor)])[0]


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    _pair: bool = True,
) -> int:
    """alltoall outside jit that returns a handle at once; synchronize(handle) returns (array, received splits)."""
    (value,) = _outside_jit([tensor], "alltoall_async")
    handle = _arrays.collectives.alltoall_async(value, splits, name, process_set)

    def finish(pair: Any) -> Any:
        out = _arrays.to_jax(pair[0], tensor)
        return (out, pair[1]) if _pair else out

    return _pending(handle, finish)


# ---- reducescatter


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """The sum (or average) of an array over all ranks, divided among them: [rows of this rank, ...].

    The first (rows mod size) ranks get one row more.  op: Average or Sum.  A scalar is a ValueError.
    """
    tensors = [tensor]
    call = Operation(REDUCESCATTER, name, process_set, scatter_op(op), 0, False, prescale_factor, postscale_factor)
    _arrays_only(tensors)
    return _compressed(call, tensors, compression)[0]


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """reducescatter outside jit that returns a handle at once."""
    (value,) = _outside_jit([tensor], "reducescatter_async")
    handle = _arrays.collectives.reducescatter_async(value, name, op, process_set, prescale_factor, postscale_factor)
    return _pending(handle, _one(tensor))


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """reducescatter of several arrays that become ready, and run, together."""
    _grouped(tensors)
    _arrays_only(tensors)
    call = Operation(REDUCESCATTER, name, process_set, scatter_op(op), 0, True, prescale_factor, postscale_factor)
    return _compressed(call, tensors, compression)


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """grouped_reducescatter outside jit that returns a handle at once."""
    values = _outside_jit(tensors, "grouped_reducescatter_async")
    handle = _arrays.collectives.grouped_reducescatter_async(values, name, op, process_set, prescale_factor, postscale_factor)
    return _pending(handle, _many(tensors))


def barrier(process_set: ProcessSet = global_process_set, name: str | None = None) -> None:
    """Returns when all ranks of the set have called it; inside jit, what follows in the program waits for that."""
    _primitive.bind(Operation(BARRIER, name, process_set), [])
