"""The operations on TensorFlow tensors: eagerly, in tf.function and in TF1-style graphs.

Their gradients are in _op_gradients.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hvd._native import DTYPES, Average, Sum
from hvd._runtime.arguments import checked_factor, reduce_op
from hvd.process_sets import ProcessSet, global_process_set
from hvd.tensorflow import _library, _xla
from hvd.tensorflow._library import unconverted
from hvd.tensorflow.compression import Compression, Compressor

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]

_POSSIBLE = frozenset(name for name in DTYPES if _library.FLOAT8 or not name.startswith("float8"))


def _tensors(values: Sequence[Any]) -> list[tf.Tensor]:
    tensors = [tf.convert_to_tensor(value) for value in values]
    for tensor in tensors:
        if tensor.dtype.base_dtype.name not in _POSSIBLE:
            raise ValueError(f"tensors of {tensor.dtype.name} cannot be exchanged (possible: {', '.join(sorted(_POSSIBLE))})")
    return tensors


def call_reduction(
    kind: str,
    values: Sequence[Any],
    name: str | None,
    group: bool,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> list[tf.Tensor]:
    if not values:
        return []
    tensors = _tensors(values)
    if kind == "allreduce" and _xla.can_be_compiled(tensors, op):
        factors = checked_factor(prescale, "prescale_factor"), checked_factor(postscale, "postscale_factor")
        return _xla.allreduce(tensors, name, group, op, *factors, _library.set_id(process_set))
    return _library.call(  # type: ignore[no-any-return]
        kind,
        name,
        tensors=tensors,
        first_dimension=kind == "reducescatter",
        group=group,
        reduce=reduce_op(op, None),
        prescale_bits=_library.bits(checked_factor(prescale, "prescale_factor")),
        postscale_bits=_library.bits(checked_factor(postscale, "postscale_factor")),
        process_set=_library.set_id(process_set),
    )


@unconverted
def many_allreduce(
    tensors: Sequence[tf.Tensor],
    name: str | None,
    op: int,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """allreduce of several tensors in one TensorFlow op; unlike grouped_allreduce, each runs as soon as it is ready."""
    return call_reduction("allreduce", tensors, name, False, op, prescale_factor, postscale_factor, process_set)


def _compressed(kind: str, tensors: Sequence[Any], compression: type[Compressor], *args: Any) -> list[tf.Tensor]:
    small, contexts = zip(*(compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors)) if tensors else ((), ())
    return [compression.decompress(out, ctx) for out, ctx in zip(call_reduction(kind, small, *args), contexts)]


def _check_sparse(op: int) -> None:
    if op not in (Average, Sum):
        raise NotImplementedError("IndexedSlices can be reduced by Sum and Average only (see sparse_as_dense)")


def _sparse_allreduce(
    slices: tf.IndexedSlices, op: int, factor: float, name: str | None, process_set: ProcessSet
) -> tf.IndexedSlices:
    """Gathers all ranks' rows.  Users of IndexedSlices add up the rows of one index, so the rows represent the sum."""
    _check_sparse(op)
    values, indices = grouped_allgather([slices.values, slices.indices], name=name, process_set=process_set)
    if factor != 1:
        values = values * tf.cast(factor, values.dtype)
    if op == Average:
        values = values / tf.cast(size_op(_library.set_id(process_set)), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


@unconverted
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over all ranks.  Its shape may be any, but the same on all ranks.  Without op: Average.

    A tf.IndexedSlices is gathered: the result has the rows of all ranks, divided by their number for Average.
    device_dense, device_sparse and ignore_name_scope are accepted as in Horovod and have no effect.
    Errors: see hvd.tensorflow._library.call.
    """
    chosen = reduce_op(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        return _sparse_allreduce(tensor, chosen, prescale_factor * postscale_factor, name, process_set)
    args = (name, False, chosen, prescale_factor, postscale_factor, process_set)
    return _compressed("allreduce", [tensor], compression, *args)[0]


@unconverted
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """allreduce of several tensors that become ready and run together."""
    chosen = reduce_op(op, average)
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    if len(dense) < len(tensors):
        _check_sparse(chosen)
    results: list[Any] = list(tensors)
    if dense:
        args = (name, True, chosen, prescale_factor, postscale_factor, process_set)
        for i, out in zip(dense, _compressed("allreduce", [tensors[i] for i in dense], compression, *args)):
            results[i] = out
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            factor = prescale_factor * postscale_factor
            results[i] = _sparse_allreduce(tensor, chosen, factor, name and f"{name}.{i}", process_set)
    return results


def many_allgather(values: Sequence[Any], name: str | None, group: bool, process_set: ProcessSet) -> list[tf.Tensor]:
    if not values:
        return []
    return _library.call(  # type: ignore[no-any-return]
        "allgather",
        name,
        tensors=_tensors(values),
        first_dimension=True,
        group=group,
        process_set=_library.set_id(process_set),
    )


@unconverted
def allgather(
    tensor: Any, name: str | None = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
) -> tf.Tensor:
    """Concatenates all ranks' tensors: [sum of dim 0, ...].  Only the first dimension may differ.  A scalar: [size]."""
    return many_allgather([tensor], name, False, process_set)[0]


@unconverted
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """allgather of several tensors that become ready and run together."""
    return many_allgather(tensors, name, True, process_set)


def root_in(process_set: ProcessSet, root_rank: int) -> int:
    """The set's rank of a rank of the world.  ValueError if that rank is no member."""
    _library.set_id(process_set)
    ranks = process_set.ranks or []
    if root_rank not in ranks:
        raise ValueError(f"root_rank is {root_rank}, but the ranks are {ranks}")
    return ranks.index(root_rank)


@unconverted
def many_broadcast(
    tensors: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[tf.Tensor]:
    """broadcast of several tensors in one TensorFlow op."""
    return _library.call(  # type: ignore[no-any-return]
        "broadcast",
        name,
        tensors=_tensors(tensors),
        root=root_in(process_set, root_rank),
        process_set=_library.set_id(process_set),
    )


@unconverted
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """A new tensor with root_rank's values.  The same shape and dtype on all ranks."""
    return many_broadcast([tensor], root_rank, name, process_set)[0]


@unconverted
def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Overwrites variables with root_rank's; returns the variables, or in a graph the operations that do it."""
    values = many_broadcast([tf.convert_to_tensor(v) for v in variables], root_rank, name, process_set)
    done = [variable.assign(value) for variable, value in zip(variables, values)]
    return variables if tf.executing_eagerly() else done


@unconverted
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces tensor over all ranks; each gets its share of the rows, the first (rows mod size) ranks one more."""
    args = (name, False, op, prescale_factor, postscale_factor, process_set)
    return _compressed("reducescatter", [tensor], compression, *args)[0]


@unconverted
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[tf.Tensor]:
    """reducescatter of several tensors that become ready and run together."""
    args = (name, True, op, prescale_factor, postscale_factor, process_set)
    return _compressed("reducescatter", tensors, compression, *args)


@unconverted
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows to all ranks, in order: splits[r] of them to rank r ([ranks] int32).  Without splits: equal parts.

    Returns the rows that all ranks sent here: [sum of received rows, ...].  With splits, returns a pair: these rows, and
    [ranks] int32, the number of rows from each rank.  Only the first dimension may differ between ranks.
    """
    value = _tensors([tensor])[0]
    parts = tf.zeros([0], tf.int32) if splits is None else tf.convert_to_tensor(splits)
    if not parts.dtype.is_integer and parts.shape.num_elements() != 0:
        raise ValueError(f"splits must be whole numbers, not {parts.dtype.name}")
    parts = tf.saturate_cast(parts, tf.int32)  # a number that is too large stays too large
    received, counts = _library.call("alltoall", name, tensor=value, splits=parts, process_set=_library.set_id(process_set))
    if not tf.executing_eagerly() and value.shape.rank:
        received.set_shape(tf.TensorShape([None]).concatenate(value.shape[1:]))
    return received if splits is None else (received, counts)


@unconverted
def join(device: int = -1) -> tf.Tensor:
    """Declares that this rank has no more data.  Waits until all ranks have done so.  Returns the last rank to join: []
    int32.

    Meanwhile this rank contributes zeros to the others' operations.  In a graph this happens when the graph runs.
    device is accepted as in Horovod.
    """
    from hvd.numpy import join as waits

    if tf.executing_eagerly():
        return tf.constant(waits(device), tf.int32)
    joined = tf.numpy_function(lambda: np.int32(waits(device)), [], tf.int32)
    joined.set_shape([])
    return joined


@unconverted
def barrier(process_set: ProcessSet = global_process_set, name: str | None = None) -> Any:
    """Returns when all ranks of the set have called barrier().  In a graph: returns the operation that waits for them."""
    return _library.call("barrier", name, process_set=_library.set_id(process_set))


@unconverted
def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of ranks when the graph runs: [] int32."""
    return _library.world(0, name, process_set_id)


@unconverted
def rank_op(name: str | None = None) -> tf.Tensor:
    """This rank when the graph runs: [] int32."""
    return _library.world(1, name)


@unconverted
def local_size_op(name: str | None = None) -> tf.Tensor:
    """The number of this host's ranks when the graph runs: [] int32."""
    return _library.world(2, name)


@unconverted
def local_rank_op(name: str | None = None) -> tf.Tensor:
    """This rank's number among the ranks of its host, when the graph runs: [] int32."""
    return _library.world(3, name)


@unconverted
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Returns whether this rank is in a process set when the graph runs: [] int32.  1 or 0; -1 before init(), -2 for no such
    set."""
    return _library.world(4, name, process_set_id)
