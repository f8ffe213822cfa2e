"""Compression for sending: a smaller float type, or two thin matrices."""

from __future__ import annotations

from typing import Any

import torch

from hvd._runtime.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor", "PowerSGD"]


class _CastCompressor(CastCompressor):
    @staticmethod
    def is_floating(tensor: torch.Tensor) -> bool:
        return tensor.dtype.is_floating_point

    @staticmethod
    def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensor.to(dtype)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16."""

    wire = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: float32's range, fewer digits."""

    wire = torch.bfloat16


class PowerSGD(Compressor):
    """The result of Compression.powersgd(rank), for DistributedOptimizer(compression=...) only.

    rank: columns of the thin matrices; more columns are more exact and send more.
    least_saving: parameters that would not be sent in this many times fewer elements travel unchanged, and so do vectors.
    """

    def __init__(self, rank: int = 2, least_saving: float = 2.0) -> None:
        if rank < 1:
            raise ValueError(f"rank is {rank}: it must be at least 1")
        self.rank = rank
        self.least_saving = least_saving

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:  # type: ignore[override]
        """ValueError: it needs two exchanges, and keeps its error for the next step."""
        raise ValueError("PowerSGD keeps state from step to step: give it to DistributedOptimizer(compression=...)")

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # type: ignore[override]
        """See compress."""
        raise ValueError("PowerSGD keeps state from step to step: give it to DistributedOptimizer(compression=...)")

    def fits(self, parameter: torch.Tensor) -> bool:
        """Returns whether a parameter's gradient is sent as two thin matrices."""
        if parameter.dim() < 2 or not parameter.dtype.is_floating_point:
            return False
        rows, columns = parameter.shape[0], parameter[0].numel()
        return rows * columns >= self.least_saving * (rows + columns) * min(self.rank, rows, columns)


class Compression:
    """The choices for the `compression` argument."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    powersgd = PowerSGD
