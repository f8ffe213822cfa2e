"""Gradients of a global batch that do not depend on the number of ranks: hvd.elastic.run(keep_global_batch=True).

Each micro-batch is the share of one rank of the first world.  The gradients of each micro-batch are kept apart until the step.
Then rank d gets the d-th part of every rank's gradients.  Rank d adds them up in the order of the shares, and sends the sum to
all. In a world of any size, the same numbers are thus added in the same order.  So the sums are bitwise equal.  While no rank
is missing, this moves as many bytes as an allreduce.

Multiplication and addition are separate calls: fused ones round differently at the scalar end of a loop.
"""

from __future__ import annotations

from typing import Any

import torch

from hvd import _native
from hvd._native import Average
from hvd._runtime import world as _world
from hvd.torch._optimizer import second_passes
from hvd.torch.compression import Compression
from hvd.torch.ops import collectives

_BUCKET_BYTES = 16 << 20  # bytes of each share in one exchange
_HALVES = (torch.float16, torch.bfloat16)


class ShareWeights:
    """The numbers of samples in a global batch.

    samples: of each share, in order; mine: this rank's shares with at least one sample.
    """

    def __init__(self, samples: list[int], mine: list[int]) -> None:
        self.all = sum(samples)
        self.weights = [count / self.all for count in samples if count]
        self.mine = mine


# The current batch, from the loader's delivery until the next, and the share of its current micro-batch.
active: ShareWeights | None = None
share: int | None = None


def begin(batch: ShareWeights | None, number: int | None = None) -> None:
    """Sets the batch and share for the following backward() and step()."""
    global active, share
    active, share = batch, number
    if batch is not None:
        second_passes.expect(before_any_pass=True)
    _native.hooks_in_python(batch is not None)


def end(batch: ShareWeights) -> None:
    """Ends the batch, unless another one has begun since."""
    if active is batch:
        begin(None)


class ShareGradients:
    """The gradients from backward() for one batch, of one reducer's parameters."""

    def __init__(self, batch: ShareWeights) -> None:
        self.batch = batch
        self.found: dict[Any, dict[int, torch.Tensor]] = {}  # by the parameter's entry, by share
        self.before: dict[Any, torch.Tensor | None] = {}  # the previous gradient, to which the sum is added

    def begins(self, entry: Any) -> None:
        """backward() is about to add to the gradient."""
        if entry not in self.before:
            self.before[entry] = entry.parameter.grad
            entry.parameter.grad = None

    def ready(self, entry: Any) -> None:
        """backward() has added to the gradient."""
        gradient, entry.parameter.grad = entry.parameter.grad, None
        assert share is not None
        if gradient is None:
            return
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        shares = self.found.setdefault(entry, {})
        shares[share] = gradient if share not in shares else shares[share].add_(gradient)

    def of(self, entry: Any, number: int) -> torch.Tensor:
        """A flat gradient; zeros if that share has none."""
        gradient = self.found.get(entry, {}).get(number)
        return torch.zeros_like(entry.parameter).view(-1) if gradient is None else gradient.reshape(-1)

    def give(self, entry: Any, total: torch.Tensor) -> None:
        """Sets the flat sum as the parameter's gradient."""
        parameter, before = entry.parameter, self.before.get(entry, entry.parameter.grad)
        if before is not None:
            before.add_(total.view(parameter.shape))
            parameter.grad = before
        elif parameter.is_contiguous():
            parameter.grad = total.view(parameter.shape)
        else:
            parameter.grad = torch.empty_like(parameter).copy_(total.view(parameter.shape))


def refuse(settings: Any, is_plain: bool) -> None:
    """ValueError for an optimizer with another reduction than the mean over all ranks."""
    plain = is_plain and settings.op == Average and settings.compression is Compression.none and settings.predivide == 1
    if not plain or settings.process_set.process_set_id != 0:
        raise ValueError(
            "a GlobalBatchLoader needs a DistributedOptimizer with op=Average, without compression and without "
            "gradient_predivide_factor, over all ranks"
        )


def add_up(gradients: ShareGradients, entries: list[Any], name: str) -> None:
    """Sets the sums of the entries' parameters.  Collective: the same entries on all ranks, for one batch."""
    with torch.no_grad():
        sums = [_Sum(gradients, some, f"{name}.shares.{number}") for number, some in enumerate(_buckets(entries))]
        gradients.found.clear()
        for one in sums:
            one.add()
        for one in sums:
            one.give()
    for entry, before in gradients.before.items():
        if entry.parameter.grad is None:
            entry.parameter.grad = before


def _buckets(entries: list[Any]) -> list[list[Any]]:
    """Neighbouring entries of one type and device."""
    found: list[list[Any]] = []
    size, last = 0, None
    for entry in entries:
        kind = entry.parameter.dtype, entry.parameter.device
        bytes_more = entry.parameter.numel() * entry.parameter.element_size()
        if kind != last or size + bytes_more > _BUCKET_BYTES:
            found.append([])
            size, last = 0, kind
        found[-1].append(entry)
        size += bytes_more
    return found


class _Sum:
    """The sum for some parameters.  [shares, elements] in ranks' parts: rank d adds up columns d * width to (d + 1) * width."""

    def __init__(self, gradients: ShareGradients, entries: list[Any], name: str) -> None:
        self.gradients, self.entries, self.name = gradients, entries, name
        mine, size = gradients.batch.mine, _world.size()
        self.elements = sum(entry.parameter.numel() for entry in entries)
        self.width = -(-self.elements // size)
        parameter = entries[0].parameter
        flat = torch.zeros(len(mine), self.width * size, dtype=parameter.dtype, device=parameter.device)
        for row, number in zip(flat, mine):
            torch.cat([gradients.of(entry, number) for entry in entries], out=row[: self.elements])
        if size == 1:
            self.rows = flat
            return
        # [ranks, my shares, width]: no copy while this rank has one share
        parts = flat.view(len(mine), size, self.width).transpose(0, 1).reshape(len(mine) * size, self.width)
        self.handle = collectives.alltoall_async(parts, torch.full((size,), len(mine), dtype=torch.int32), f"{name}.parts")

    def add(self) -> None:
        """Adds up in the order of the shares, and sends the sum on."""
        if _world.size() > 1:
            self.rows, _ = collectives.synchronize(self.handle)
        weights = self.gradients.batch.weights
        assert len(self.rows) == len(weights), "ranks disagree about the shares of a batch"
        total = None
        for row, weight in zip(self.rows, weights):
            weighted = (row.float() if row.dtype in _HALVES else row).mul_(weight)
            total = weighted if total is None else total.add_(weighted)
        assert total is not None
        self.total = total.to(self.rows.dtype)
        del self.rows
        if _world.size() > 1:
            self.handle = collectives.allgather_async(self.total, f"{self.name}.sums")

    def give(self) -> None:
        """Sets the parameters' gradients."""
        total = collectives.synchronize(self.handle) if _world.size() > 1 else self.total
        at = 0
        for entry in self.entries:
            count = entry.parameter.numel()
            self.gradients.give(entry, total[at : at + count])
            at += count
