"""Operations on the backend's tensors, outside of traced functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from hvd import numpy as _numpy
from hvd._native import Average
from hvd._runtime.arguments import reduce_op
from hvd.keras import _backend
from hvd.keras._backend import Compression

__all__ = ["allgather", "allreduce", "broadcast", "broadcast_global_variables", "broadcast_variables", "reducescatter"]

broadcast_variables = _backend.broadcast_variables


def _array(value: Any) -> np.ndarray[Any, Any]:
    array = _backend.to_numpy(value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else np.ascontiguousarray(array).reshape(array.shape)


def _back(array: np.ndarray[Any, Any], like: Any) -> Any:
    """The result in the caller's type: arrays and numbers become arrays, the backend's tensors and variables its tensors.
    Tensors of a TF1-style graph become arrays, since they have been computed."""
    if isinstance(like, (int, float, list, tuple, np.ndarray, np.generic)) or _backend.in_graph():
        return array
    if _backend.NAME == "tensorflow":
        import tensorflow as tf

        return tf.constant(array, dtype=like.dtype)
    from hvd._keras_package import keras

    return keras.ops.convert_to_tensor(array, dtype=like.dtype)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """The reduction of a number, array, tensor or variable over all ranks; Average by default."""
    array = _array(value)
    reduced = _numpy.allreduce(array, None, name, reduce_op(op, average), prescale_factor, postscale_factor)
    return _back(reduced, value)


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenates all ranks' values along the first dimension."""
    return _back(_numpy.allgather(_array(value), name), value)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """root_rank's value."""
    return _back(_numpy.broadcast(_array(value), root_rank, name), value)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """The reduction over all ranks; each gets its share of the rows."""
    return _back(_numpy.reducescatter(_array(value), name, op), value)


def broadcast_global_variables(root_rank: int) -> Any:
    """Overwrites all global variables of a TF1-style graph at once; elsewhere use the callback, or broadcast_variables."""
    from hvd.tensorflow import broadcast_global_variables as operation

    made = operation(root_rank)
    if not _backend.in_graph():
        return made
    import tensorflow as tf

    return tf.compat.v1.keras.backend.get_session().run(made)
