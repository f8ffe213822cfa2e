"""Batch normalisation over the batches of all ranks, on any device.

One operation gathers each rank's count, and for each channel the mean and the sum of squared deviations.  Forward combines
these figures.  Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
(1979).  Unlike the difference of two large sums, this method does not suffer from cancellation.  Backward sums two numbers per
channel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from hvd._native import Sum
from hvd._runtime import world as _world
from hvd.process_sets import ProcessSet, global_process_set
from hvd.torch.ops import collectives

__all__ = ["SyncBatchNorm"]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the type of the statistics: float32, float64 for float64."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def _over_channels(tensor: torch.Tensor) -> list[int]:
    """All dimensions except the channels'."""
    return [d for d in range(tensor.dim()) if d != 1]


def _along(values: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """values [C] in the shape that combines with tensor [N, C, ...]."""
    return values.view([1, -1] + [1] * (tensor.dim() - 2))


def _statistics(x: torch.Tensor, process_set: ProcessSet) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Count [], mean [C] and biased variance [C] of all ranks' x [N, C, ...] together.  N may differ, and be 0."""
    channels = x.shape[1]
    count = x.numel() // channels
    dims = _over_channels(x)
    mean = x.sum(dims) / max(count, 1)
    squares = (x - _along(mean, x)).square().sum(dims)
    mine = torch.cat([mean.new_tensor([float(count)]), mean, squares])
    parts = collectives.allgather(mine[None], "sync_batch_norm.statistics", process_set)  # [ranks, 1 + 2 C]
    counts, means, deviations = parts[:, :1], parts[:, 1 : 1 + channels], parts[:, 1 + channels :]
    total = counts.sum()
    if not total:
        raise ValueError("SyncBatchNorm: no rank has any values in its batch")
    mean = (counts * means).sum(0) / total
    squares = (deviations + counts * (means - mean).square()).sum(0)
    return total, mean, squares / total


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, weight: Any, bias: Any, module: Any, momentum: float) -> torch.Tensor:  # type: ignore[override]
        x = _wide(tensor.detach())
        total, mean, variance = _statistics(x, module.process_set)
        if module.running_mean is not None:
            unbiased = variance * (total / (total - 1).clamp(min=1))
            module.running_mean.lerp_(mean.to(module.running_mean.dtype), momentum)
            module.running_var.lerp_(unbiased.to(module.running_var.dtype), momentum)
        scale = torch.rsqrt(variance + module.eps)
        ctx.process_set = module.process_set
        ctx.save_for_backward(tensor, weight, mean, scale, total)
        normal = (x - _along(mean, x)) * _along(scale, x)
        if weight is not None:
            normal = normal * _along(_wide(weight), x) + _along(_wide(bias), x)
        return normal.to(tensor.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        tensor, weight, mean, scale, total = ctx.saved_tensors
        normal = (_wide(tensor) - _along(mean, tensor)) * _along(scale, tensor)
        dy = _wide(grad)
        dims = _over_channels(dy)
        of_bias, of_weight = dy.sum(dims), (dy * normal).sum(dims)
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([of_bias, of_weight])
            sums = collectives.allreduce(sums, None, "sync_batch_norm.sums", Sum, process_set=ctx.process_set) / total
            first, second = sums.chunk(2)
            of_input = (dy - _along(first, dy) - normal * _along(second, dy)) * _along(scale, dy)
            if weight is not None:
                of_input = of_input * _along(_wide(weight), dy)
            of_input = of_input.to(tensor.dtype)
        if weight is None:
            return of_input, None, None, None, None
        return of_input, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None, None


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d and 3d with the mean and variance of all ranks' batches together.

    All ranks must run it equally often.  Ranks may have different numbers of rows, even none.  In inference, and without
    further ranks, it is the plain layer.  The gradients of weight and bias are this rank's own, which DistributedOptimizer
    averages like all others.

    The arguments are those of torch.nn.BatchNorm2d.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
        **factory: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **factory)
        self.process_set = process_set

    def _check_input_dim(self, tensor: torch.Tensor) -> None:
        if tensor.dim() < 2:
            raise ValueError(f"SyncBatchNorm needs a tensor [N, C, ...], not one of {tensor.dim()} dimensions")
        if tensor.shape[1] != self.num_features:
            raise ValueError(f"SyncBatchNorm has {self.num_features} features, the tensor has {tensor.shape[1]}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises [N, C, ...]; collective while training."""
        own_statistics = self.training or not self.track_running_stats
        if not own_statistics or not _world.is_active() or (self.process_set.size() or 1) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the average of all batches so far
                momentum = 1.0 / float(self.num_batches_tracked)
        result: torch.Tensor = _Normalize.apply(input, self.weight, self.bias, self, momentum)
        return result
