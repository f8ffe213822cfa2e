"""What the frameworks' compressions share: the class to derive from, and the one that changes nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["Compressor", "NoneCompressor"]


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
