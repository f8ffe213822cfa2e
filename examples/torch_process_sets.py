"""Process sets: two models train at the same time, each on half of the ranks. The first feeds the second.

    hvdrun -np 2 examples/torch_process_sets.py
    hvdrun -np 4 examples/torch_process_sets.py

The first half trains an encoder of digits (scikit-learn's) by reconstructing them. The second half trains a classifier on the
codes from the last epoch's encoder. Each half averages its gradients in its own process set. The halves wait for each other
only once an epoch, when the first sends the encoder to the second.
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional

import horovod.torch as hvd


def main(epochs: int = 12, quiet: bool = False) -> dict[str, float]:
    """Returns the last reconstruction error and the classifier's accuracy, on every rank."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if size < 2:
        raise SystemExit("this example needs two ranks at least: hvdrun -np 2 ...")
    encoders = hvd.add_process_set(range(size // 2))
    classifiers = hvd.add_process_set(range(size // 2, size))
    encodes = encoders.included()
    mine: Any = encoders if encodes else classifiers
    torch.manual_seed(1)
    torch.set_num_threads(1)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    part = slice(mine.rank(), len(x) // mine.size() * mine.size(), mine.size())  # this rank's share of its half's work

    encoder = nn.Sequential(nn.Linear(64, 24), nn.Tanh())
    head = nn.Linear(24, 64) if encodes else nn.Linear(24, 10)
    trained = [*encoder.parameters(), *head.parameters()] if encodes else list(head.parameters())
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(trained, lr=0.01), process_set=mine)
    loss = torch.zeros(())
    for epoch in range(epochs):
        for picked in torch.randperm(len(x))[part].split(32):
            optimizer.zero_grad()
            if encodes:
                loss = functional.mse_loss(head(encoder(x[picked])), x[picked])
            else:
                loss = functional.cross_entropy(head(encoder(x[picked]).detach()), y[picked])
            loss.backward()
            optimizer.step()
        # The one place where both halves meet: all ranks take the first half's encoder.
        hvd.broadcast_parameters(encoder.state_dict(), root_rank=0)
        if rank in (0, size // 2) and not quiet:
            what = "reconstruction" if encodes else "classification"
            print(f"epoch {epoch + 1:2}  rank {rank}  {what} loss {loss.item():.3f}", flush=True)
    right = (head(encoder(x)).argmax(1) == y).float().mean() if not encodes else torch.zeros(())
    accuracy = hvd.broadcast(right, root_rank=size - 1, name="accuracy").item()
    error = hvd.broadcast(loss.detach(), root_rank=0, name="error").item()
    if rank == 0 and not quiet:
        print(f"accuracy on encoded digits {accuracy:.1%}", flush=True)
    hvd.remove_process_set(classifiers)
    hvd.remove_process_set(encoders)
    return {"accuracy": accuracy, "error": error}


if __name__ == "__main__":
    main()
