"""float16, bfloat16 and float32 gradients in one model, fused by look-ahead.

    hvdrun -np 2 examples/torch_mixed_precision.py

The layers' weights alternate between the three types. So no two neighbours in the order of backward can share a message. The
runtime looks past gradients of another type and fuses gradients of equal type. The example trains a classifier of digits. It
prints the time to exchange the gradients together, and one by one, as without fusion.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

TYPES = (torch.bfloat16, torch.float16, torch.float32)


class Layer(nn.Module):
    """A residual layer that keeps its weights in a given type and computes in float32."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.randn(width, width) / (4 * width**0.5)).to(dtype))
        self.bias = nn.Parameter(torch.zeros(width, dtype=dtype))

    def forward(self, x: torch.Tensor) -> Any:
        """[n, width] to the same."""
        return x + torch.tanh(functional.linear(x, self.weight.float(), self.bias.float())) / 8


def exchanged(gradients: list[torch.Tensor], fused: bool) -> float:
    """Seconds to average all gradients; fused: all are submitted before the first is awaited."""
    hvd.barrier()
    start = time.perf_counter()
    handles = []
    for i, gradient in enumerate(gradients):
        handle = hvd.allreduce_async_(gradient, name=f"gradient.{i}", op=hvd.Average)
        if fused:
            handles.append(handle)
        else:
            hvd.synchronize(handle)
    for handle in handles:
        hvd.synchronize(handle)
    return time.perf_counter() - start


def main(epochs: int = 10, layers: int = 24, quiet: bool = False) -> dict[str, float]:
    """Trains; returns the accuracy and the milliseconds of both ways."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    model = nn.Sequential(*[Layer(64, TYPES[i % 3]) for i in range(layers)], nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for _ in range(epochs):
        for picked in torch.randperm(len(x))[: len(x) // size * size].view(-1, size)[:, rank].split(32):
            optimizer.zero_grad()
            functional.cross_entropy(model(x[picked]), y[picked]).backward()
            optimizer.step()
    right = (model(x[rank::size]).argmax(1) == y[rank::size]).float().sum()
    found = {"accuracy": hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(x)}
    gradients = [torch.ones_like(p) for p in reversed(list(model.parameters()))]
    for _ in range(30):  # alternately, and the least of each: others may use this machine
        for name, fused in (("one by one", False), ("together", True)):
            found[name] = min(found.get(name, math.inf), exchanged(gradients, fused) * 1e3)
    if rank == 0 and not quiet:
        print(f"accuracy {found['accuracy']:.1%} after {epochs} epochs")
        print(
            f"{len(gradients)} gradients of three types: one by one {found['one by one']:.2f} ms, together "
            f"{found['together']:.2f} ms: {found['one by one'] / found['together']:.1f} times as fast",
            flush=True,
        )
    return found


if __name__ == "__main__":
    main()
