"""Embeddings with sparse gradients: only used rows travel; compares all tables together with one by one.

    hvdrun -np 2 examples/torch_embedding.py

Each of the 64 pixels of a digit (0 to 16, scikit-learn's digits) selects a row of its own table. So a step has 64 sparse
gradients. DistributedOptimizer submits them as they appear, and they travel together. The example also exchanges them one after
the other, and as dense tensors, and prints the time of each way.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

PIXELS, VALUES, WIDTH = 64, 17, 16


class Net(nn.Module):
    """A table for each pixel; the sum of the rows selects the digit."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(VALUES, WIDTH, sparse=True) for _ in range(PIXELS)])
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.1)
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, pixels: torch.Tensor) -> Any:
        """pixels: [n, 64] of 0..16; returns [n, 10]."""
        rows = torch.stack([table(pixels[:, i]) for i, table in enumerate(self.tables)])
        return self.out(torch.tanh(rows.sum(0)))


def one_by_one(net: Net) -> float:
    """Seconds to exchange the tables' gradients, each awaited before the next is sent."""
    hvd.barrier()
    start = time.perf_counter()
    for i, table in enumerate(net.tables):
        finish = hvd.sparse_allreduce_async(table.weight.grad, name=f"single.{i}", op=hvd.Average)
        finish()
    return time.perf_counter() - start


def together(net: Net) -> float:
    """Like one_by_one(), but all are sent before the first is awaited: they share batches."""
    hvd.barrier()
    start = time.perf_counter()
    under_way = [
        hvd.sparse_allreduce_async(table.weight.grad, name=f"fused.{i}", op=hvd.Average) for i, table in enumerate(net.tables)
    ]
    for finish in under_way:
        finish()
    return time.perf_counter() - start


def dense(net: Net) -> float:
    """Seconds to exchange all rows, including unused ones."""
    hvd.barrier()
    start = time.perf_counter()
    hvd.grouped_allreduce([table.weight.grad.to_dense() for table in net.tables], name="dense")
    return time.perf_counter() - start


def main(epochs: int = 8, quiet: bool = False) -> dict[str, float]:
    """Trains; returns the accuracy and the milliseconds of each way."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    digits = load_digits()
    x, y = torch.tensor(digits.data).long(), torch.tensor(digits.target)
    net = Net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.3 * size), named_parameters=net.named_parameters()
    )
    for _ in range(epochs):
        for picked in torch.randperm(len(x))[: len(x) // size * size].view(-1, size)[:, rank].split(32):
            optimizer.zero_grad()
            functional.cross_entropy(net(x[picked]), y[picked]).backward()
            optimizer.step()
    right = (net(x[rank::size]).argmax(1) == y[rank::size]).float().sum()
    found = {"accuracy": hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(x)}
    optimizer.zero_grad()
    functional.cross_entropy(net(x[rank : 32 * size : size]), y[rank : 32 * size : size]).backward()
    optimizer.synchronize()
    for name, way in (("one by one", one_by_one), ("together", together), ("dense", dense)):
        way(net)  # warms up
        found[name] = min(way(net) for _ in range(10)) * 1e3
    if rank == 0 and not quiet:
        print(f"accuracy {found['accuracy']:.1%} after {epochs} epochs")
        ways = ", ".join(f"{name} {found[name]:.2f} ms" for name in ("one by one", "together", "dense"))
        print(f"64 gradients: {ways}; together is {found['one by one'] / found['together']:.1f} times as fast", flush=True)
    return found


if __name__ == "__main__":
    main()
