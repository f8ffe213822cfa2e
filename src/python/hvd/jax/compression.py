"""Compression of what is sent: a smaller float type on the way."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from hvd._compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(Compressor):
    wire: Any

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:  # type: ignore[override]
        dtype = jnp.asarray(tensor).dtype
        if jnp.issubdtype(dtype, jnp.floating) and dtype != cls.wire:
            return jnp.asarray(tensor).astype(cls.wire), dtype
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:  # type: ignore[override]
        return tensor if ctx is None else tensor.astype(ctx)


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
