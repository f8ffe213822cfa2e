"""What the frameworks' compressions share: the class to derive from, and those that change nothing or the type."""

from __future__ import annotations

from typing import Any

__all__ = ["CastCompressor", "Compressor", "NoneCompressor"]


class Compressor:
    """Turns a tensor into what is sent, and back.  Both are called on the same rank; ctx is the compressor's own."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and a ctx for decompress."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the form the caller had."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class CastCompressor(Compressor):
    """Sends floating-point tensors as `wire`, a dtype of the framework.  A framework says how it looks and casts."""

    wire: Any

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Whether it is of a floating-point dtype."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """It as another dtype."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:  # type: ignore[override]
        if cls.is_floating(tensor) and tensor.dtype != cls.wire:
            return cls.cast(tensor, cls.wire), tensor.dtype
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:  # type: ignore[override]
        return tensor if ctx is None else cls.cast(tensor, ctx)
