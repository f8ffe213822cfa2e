"""Batch normalisation over the batches of all ranks.

Forward gathers three numbers per channel from each rank, in one operation: count, mean and sum of squared deviations.
Forward combines the numbers like hvd/torch/sync_batch_norm.py.  Backward sums two numbers per channel.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvd._native import Sum
from hvd._runtime import world as _world
from hvd.process_sets import ProcessSet, global_process_set
from hvd.tensorflow._library import unconverted
from hvd.tensorflow.ops import allgather, allreduce

__all__ = ["SyncBatchNormalization"]

_Base = tf.keras.layers.BatchNormalization
_KERAS_2 = hasattr(_Base, "_fused_can_be_used")
_over = tf.math.divide_no_nan


def _statistics(
    x: tf.Tensor, counted: tf.Tensor | None, axes: Sequence[int], process_set: ProcessSet
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Count, mean and biased variance of the x of all ranks together, with the rank of x.  In float64, which is exact
    here.

    counted: marks the elements of x that count; the others are 0.  None: all count.  The number of rows may differ, and
    be 0.
    """

    def total(values: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.reduce_sum(values, axes, keepdims=True), tf.float64)

    sums = total(x)
    if counted is None:
        weight = tf.ones([], x.dtype)
        count = tf.ones_like(sums) * tf.cast(tf.size(x, tf.int64) // tf.size(sums, tf.int64), tf.float64)
    else:
        weight = tf.cast(counted, x.dtype)
        count = total(weight)
    near = tf.cast(_over(sums, count), x.dtype)
    off = (x - near) * weight
    more = _over(total(off), count)  # the rounding error of near
    mine = tf.stack([count, tf.cast(near, tf.float64) + more, total(tf.square(off)) - count * tf.square(more)])
    parts = allgather(mine[tf.newaxis], process_set=process_set)  # [ranks, 3, ...]
    counts, means, squares = parts[:, 0], parts[:, 1], parts[:, 2]
    count = tf.reduce_sum(counts, 0)
    mean = _over(tf.reduce_sum(counts * means, 0), count)
    squares = tf.reduce_sum(squares + counts * tf.square(means - mean), 0)
    return count, mean, _over(squares, count)


def _moments_of_all(x: tf.Tensor, counted: tf.Tensor | None, axes: Sequence[int], process_set: ProcessSet) -> Any:
    """Mean and biased variance of all ranks' x together, with x's rank; differentiable, more than once too."""
    if counted is not None:
        x = tf.where(counted, x, tf.zeros_like(x))
    statistics = _statistics(tf.stop_gradient(x), counted, axes, process_set)
    count, mean, variance = (tf.cast(value, x.dtype) for value in statistics)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def moments(x: tf.Tensor) -> Any:
        def gradient(of_mean: tf.Tensor, of_variance: tf.Tensor) -> tf.Tensor:
            sums = allreduce(tf.stack([of_mean, of_variance]), op=Sum, process_set=process_set)
            centre, _ = moments(x)  # which depends on x, where a gradient of this is asked for
            of_x = _over(sums[0] + 2 * (x - centre) * sums[1], count)
            return of_x if counted is None else tf.where(counted, of_x, tf.zeros_like(x))

        return (tf.identity(mean), tf.identity(variance)), gradient

    return moments(x)


class SyncBatchNormalization(_Base):  # type: ignore[misc, valid-type]
    """tf.keras.layers.BatchNormalization with the mean and variance of all ranks' batches together.
    Ranks may have different numbers of rows, even none.  With one rank, and in inference, it is the plain layer.
    process_set: the ranks whose batches count; fused is accepted as in Horovod and must be false.
    """

    def __init__(self, fused: bool = False, process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True")
        if not kwargs.get("name"):
            kwargs["name"] = None
        kwargs.pop("synchronized", None)  # Keras' own, over a distribution strategy
        if _KERAS_2:
            kwargs["fused"] = False  # otherwise it uses a kernel for images that does not ask for the moments
        super().__init__(**kwargs)
        self._hvd_process_set = process_set

    def _alone(self) -> bool:
        of = self._hvd_process_set
        return not _world.is_active() or ((of.size() or 1) == 1 and not of.may_change())

    @unconverted
    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        # Keras 3: (inputs, mask).  Keras 2: (inputs, reduction_axes, keep_dims, mask).
        if self._alone():
            return super()._moments(inputs, *args, **kwargs)
        call = inspect.signature(super()._moments).bind(inputs, *args, **kwargs).arguments
        axes = call["reduction_axes"] if _KERAS_2 else self._reduction_axes
        mask = call.get("mask")
        counted = None if mask is None else tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))
        wide = tf.cast(inputs, tf.float64 if inputs.dtype == tf.float64 else tf.float32)
        mean, variance = _moments_of_all(wide, counted, axes, self._hvd_process_set)
        if not call.get("keep_dims", False):
            mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """Keras' own configuration, without the parts that belong to this job."""
        config: dict[str, Any] = super().get_config()
        config.pop("synchronized", None)
        return config
