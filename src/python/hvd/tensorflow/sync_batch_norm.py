"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvd import _world
from hvd.process_sets import ProcessSet, global_process_set
from hvd.tensorflow.ops import Sum, allreduce

__all__ = ["SyncBatchNormalization"]

_Base = tf.keras.layers.BatchNormalization


class SyncBatchNormalization(_Base):  # type: ignore[misc, valid-type]
    """tf.keras.layers.BatchNormalization whose mean and variance are those of all ranks' batches together.

    Ranks may have different numbers of rows.  Without further ranks, and in inference, it is the plain layer.
    process_set: whose batches; fused is accepted as in Horovod and must be false.
    """

    def __init__(self, fused: bool = False, process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True")
        if not kwargs.get("name"):
            kwargs["name"] = None
        kwargs.pop("synchronized", None)  # Keras' own, over a distribution strategy
        super().__init__(**kwargs)
        self._hvd_process_set = process_set

    def _alone(self) -> bool:
        return not _world.is_initialized() or (self._hvd_process_set.size() or 1) == 1

    def _of_all_ranks(self, count: Any, first: Any, second: Any) -> tuple[Any, Any]:
        """Mean and variance from sums of values, of their squares, and their number: one small allreduce."""
        width = tf.shape(first)
        sums = tf.concat([tf.reshape(count, [1]), tf.reshape(first, [-1]), tf.reshape(second, [-1])], 0)
        sums = allreduce(sums, op=Sum, process_set=self._hvd_process_set)
        elements = (tf.size(sums) - 1) // 2
        mean = tf.reshape(sums[1 : 1 + elements] / sums[0], width)
        square = tf.reshape(sums[1 + elements :] / sums[0], width)
        return mean, tf.maximum(square - tf.square(mean), 0.0)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        # Keras 3: (inputs, mask).  Keras 2: (inputs, reduction_axes, keep_dims, ...).
        if self._alone():
            return super()._moments(inputs, *args, **kwargs)
        keep = bool(args[1]) if len(args) > 1 and isinstance(args[1], bool) else bool(kwargs.get("keep_dims", False))
        axes = self.axis if isinstance(self.axis, (list, tuple)) else [self.axis]
        kept = {axis % len(inputs.shape) for axis in axes}
        reduced = [axis for axis in range(len(inputs.shape)) if axis not in kept]
        mask = args[0] if args and tf.is_tensor(args[0]) else None
        values = tf.cast(inputs, tf.float32)
        weight = tf.ones_like(values)
        if mask is not None:
            shape = tf.concat([tf.shape(mask), tf.ones([tf.rank(values) - tf.rank(mask)], tf.int32)], 0)
            weight = weight * tf.cast(tf.reshape(mask, shape), tf.float32)
        first = tf.reduce_sum(values * weight, reduced, keepdims=keep)
        second = tf.reduce_sum(tf.square(values) * weight, reduced, keepdims=keep)
        count = tf.reduce_sum(weight) / tf.cast(tf.size(first), tf.float32)
        mean, variance = self._of_all_ranks(count, first, second)
        static = tf.TensorShape([inputs.shape[axis] for axis in sorted(kept)]) if not keep else first.shape
        mean.set_shape(static)
        variance.set_shape(static)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """Keras' own, without what belongs to this job."""
        config: dict[str, Any] = super().get_config()
        config.pop("synchronized", None)
        return config
