"""Compression of what is sent, where Keras runs on JAX."""

from __future__ import annotations

from typing import Any

__all__ = ["Compression"]


class _None:
    """Sends tensors as they are."""

    wire = ""

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and a ctx for decompress."""
        if cls.wire and tensor.dtype.name in ("float32", "float64"):
            return tensor.astype(cls.wire), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the form the caller had."""
        return tensor if ctx is None else tensor.astype(ctx)


class _FP16(_None):
    """Sends floating-point tensors as float16."""

    wire = "float16"


class Compression:
    """The choices for the `compression` argument."""

    none = _None
    fp16 = _FP16
