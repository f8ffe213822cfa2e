"""Adasum combines ranks' steps by their similarity, so the learning rate need not grow with the number of ranks.

    hvdrun -np 2 examples/torch_adasum.py

Trains a classifier of digits (scikit-learn's) twice at the learning rate of one rank. One training averages gradients. The
other uses op=hvd.Adasum: steps in the same direction are averaged, and steps at right angles are added. Prints both losses by
epoch. The number of ranks must be a power of two.
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional

import horovod.torch as hvd


def train(op: Any, epochs: int, rate: float) -> list[float]:
    """The mean loss of each epoch, over all ranks."""
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(1)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=op)
    losses = []
    for _ in range(epochs):
        total, steps = torch.zeros(()), 0
        for picked in torch.randperm(len(x))[: len(x) // size * size].view(-1, size)[:, rank].split(16):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[picked]), y[picked])
            loss.backward()
            optimizer.step()
            total, steps = total + loss.detach(), steps + 1
        losses.append(hvd.allreduce(total / steps, name="loss").item())
    return losses


def main(epochs: int = 5, rate: float = 0.05, quiet: bool = False) -> dict[str, list[float]]:
    """Losses by epoch, of both trainings."""
    hvd.init()
    torch.set_num_threads(1)
    found = {"average": train(hvd.Average, epochs, rate), "adasum": train(hvd.Adasum, epochs, rate)}
    if hvd.rank() == 0 and not quiet:
        for epoch, (average, adasum) in enumerate(zip(*found.values()), 1):
            print(f"epoch {epoch}: loss {average:.3f} averaging, {adasum:.3f} with Adasum", flush=True)
    return found


if __name__ == "__main__":
    main()
