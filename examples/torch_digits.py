"""Handwritten digits on several ranks: the smallest complete training script.

    hvdrun -np 2 examples/torch_digits.py

1797 images of 8 x 8 pixels come with scikit-learn; a fifth of them is held out.
Comments [1] to [6] mark the distributed parts; without hvdrun the script runs alone.
"""

from __future__ import annotations

import argparse
import time

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional

import horovod.torch as hvd


def load_data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pixels [n, 64] in 0..1 and digits [n], for training and held out; the same split on every rank."""
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    held_out, training = order[: len(x) // 5], order[len(x) // 5 :]
    return x[training], y[training], x[held_out], y[held_out]


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """The accuracy over all ranks' parts of the held-out images."""
    rank, size = hvd.rank(), hvd.size()
    with torch.no_grad():
        right = (model(x[rank::size]).argmax(1) == y[rank::size]).sum()
    return hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(y)


def train(epochs: int = 12, batch: int = 32, rate: float = 0.05, checkpoint: str = "digits.pt") -> float:
    """Trains, prints a line per epoch on rank 0, and returns the accuracy on the held-out fifth."""
    hvd.init()  # [1] join the other ranks
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    x, y, test_x, test_y = load_data()

    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(512, 10),
    )
    # [2] more ranks see more images per step, so each step may be larger
    optimizer = torch.optim.SGD(model.parameters(), lr=rate * size, momentum=0.9)
    # [3] every step averages the gradients of all ranks
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    # [4] all ranks begin with rank 0's parameters
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)

    best = 0.0
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        mine = order[rank : len(x) // size * size : size]  # [5] each rank takes its share, all of one length
        model.train()
        total = torch.zeros(())
        for picked in mine.split(batch):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[picked]), y[picked])
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(picked)
        slower.step()
        mean_loss = hvd.allreduce(total / len(mine), name="loss").item()
        model.eval()
        best = accuracy(model, test_x, test_y)
        if rank == 0:
            seconds = time.perf_counter() - start
            print(f"epoch {epoch:2}/{epochs}  loss {mean_loss:.3f}  accuracy {best:.1%}  {seconds:.2f} s", flush=True)
            if checkpoint:  # [6] one rank writes
                torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
    return best


def main() -> float:
    """The job of the quickstart."""
    parser = argparse.ArgumentParser(description="Trains a classifier of handwritten digits.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32, help="images per rank and step")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate for one rank")
    parser.add_argument("--checkpoint", default="digits.pt", help="file that rank 0 writes; empty: none")
    args = parser.parse_args()
    return train(args.epochs, args.batch, args.rate, args.checkpoint)


if __name__ == "__main__":
    main()
