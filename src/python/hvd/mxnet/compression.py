"""Compression for sending: a smaller float type."""

from __future__ import annotations

from typing import Any

import numpy as np

from hvd._runtime.compression import Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


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
