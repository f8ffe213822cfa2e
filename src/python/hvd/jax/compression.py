"""Compression for sending: a smaller float type."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from hvd._runtime.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(CastCompressor):
    @staticmethod
    def is_floating(tensor: Any) -> bool:
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating))

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype)

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:  # type: ignore[override]
        return super().compress(tensor if hasattr(tensor, "dtype") else jnp.asarray(tensor))


class FP16Compressor(_CastCompressor):
    """Sends floating-point arrays as float16."""

    wire = jnp.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point arrays as bfloat16: float32's range, fewer digits."""

    wire = jnp.bfloat16


class Compression:
    """The choices for the `compression` argument."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
