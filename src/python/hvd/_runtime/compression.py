"""The common part of the frameworks' compressions: the base class, a compression that changes nothing, and one that casts."""

from __future__ import annotations

from typing import Any

__all__ = ["CastCompressor", "Compressor", "NoneCompressor"]


class Compressor:
    """Converts a tensor for sending, and back.  Both methods run on the same rank; ctx belongs to the compressor."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and a ctx for decompress."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the caller's form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class CastCompressor(Compressor):
    """Sends floating-point tensors as `wire`, a dtype of the framework.  A framework defines the test and the cast."""

    wire: Any

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Returns whether the tensor has a floating-point dtype."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The tensor as another dtype."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:  # type: ignore[override]
        if cls.is_floating(tensor) and tensor.dtype != cls.wire:
            return cls.cast(tensor, cls.wire), tensor.dtype
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:  # type: ignore[override]
        return tensor if ctx is None else cls.cast(tensor, ctx)
