"""An optimizer whose state is divided among the ranks: the same training with less memory per rank.

    hvdrun -np 2 examples/torch_sharded.py

Trains a classifier of wines (scikit-learn's) with Adam, in two ways. hvd.DistributedOptimizer keeps all of Adam's state on
every rank. hvd.ShardedOptimizer keeps this rank's part. Prints both accuracies and the sizes of the states.
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_wine  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional

import hvd.torch as hvd


def train(sharded: bool, epochs: int) -> tuple[list[torch.Tensor], float, int]:
    """The weights, the accuracy on all wines, and the bytes of the optimizer's state on this rank."""
    torch.manual_seed(1)
    wine = load_wine()
    x, y = torch.tensor(wine.data, dtype=torch.float32), torch.tensor(wine.target)
    x = (x - x.mean(0)) / x.std(0)
    model = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 3))
    adam = torch.optim.Adam(model.parameters(), lr=0.003)
    optimizer: Any = hvd.ShardedOptimizer(adam) if sharded else hvd.DistributedOptimizer(adam, model.named_parameters())
    loader = hvd.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16, shuffle=True)
    for _ in range(epochs):
        for some, answers in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(some), answers).backward()
            optimizer.step()
    if sharded:
        taken = optimizer.state_bytes()
    else:
        taken = sum(v.numel() * v.element_size() for state in optimizer.state.values() for v in state.values())
    accuracy = (model(x).argmax(1) == y).float().mean().item()
    return [p.detach() for p in model.parameters()], accuracy, taken


def main(epochs: int = 8, quiet: bool = False) -> dict[str, float]:
    """Returns both accuracies, the states' sizes, and how far the weights differ."""
    hvd.init()
    torch.set_num_threads(1)
    whole, accuracy, whole_bytes = train(False, epochs)
    parts, sharded_accuracy, part_bytes = train(True, epochs)
    apart = max((a - b).abs().max().item() for a, b in zip(whole, parts))
    if hvd.rank() == 0 and not quiet:
        print(f"DistributedOptimizer: accuracy {accuracy:.1%}, state {whole_bytes / 1024:.0f} KiB on every rank")
        print(f"ShardedOptimizer:     accuracy {sharded_accuracy:.1%}, state {part_bytes / 1024:.0f} KiB on rank 0")
        print(f"their weights differ by {apart:.1e} at most", flush=True)
    return {"accuracy": sharded_accuracy, "whole": whole_bytes, "part": part_bytes, "apart": apart}


if __name__ == "__main__":
    main()
