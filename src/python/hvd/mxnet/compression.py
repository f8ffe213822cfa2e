"""Compression of what is sent: a smaller float type on the way."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """Turns an array into what is sent, and back.  Both are called on the same rank; ctx is the compressor's own."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array to send, and a ctx for decompress."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the form the caller had."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends arrays as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point arrays as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        dtype = np.dtype(tensor.dtype)
        return (tensor.astype("float16"), dtype) if dtype.kind == "f" and dtype.itemsize > 2 else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The choices for the `compression` argument."""

    none = NoneCompressor
    fp16 = FP16Compressor
