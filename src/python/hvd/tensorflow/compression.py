"""Compression for sending: a smaller float type."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvd._runtime.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(CastCompressor):
    @staticmethod
    def is_floating(tensor: tf.Tensor) -> bool:
        return bool(tensor.dtype.is_floating)

    @staticmethod
    def cast(tensor: tf.Tensor, dtype: Any) -> tf.Tensor:
        return tf.cast(tensor, dtype)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16."""

    wire = tf.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: float32's range, fewer digits."""

    wire = tf.bfloat16


class Compression:
    """The choices for the `compression` argument."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
