"""torch.distributed over hvdrun's own runtime: init_process_group("hvd"), here with FSDP2.

    hvdrun -np 2 examples/torch_backend.py

Any script of torch.distributed can write "hvd" in place of "gloo". "cpu:hvd,cuda:nccl" leaves tensors on GPUs to NCCL. torch
2.15 finds the backend by itself; with an older torch, the script must say `import hvd.torch` first.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hvd.torch  # noqa: F401 -- not needed from torch 2.15 on


def train(epochs: int) -> float:
    """Trains on handwritten digits; returns the accuracy of the last model."""
    dist.init_process_group("hvd")
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=64, sampler=sampler)

    torch.manual_seed(0)  # all ranks begin alike; then each keeps a part of every layer
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    right = torch.zeros(())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        right.zero_()
        for images, labels in loader:
            optimizer.zero_grad()
            scores = model(images)
            functional.cross_entropy(scores, labels).backward()
            optimizer.step()
            right += (scores.argmax(1) == labels).sum()
        dist.all_reduce(right)
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}/{epochs}  right {right.item() / sampler.total_size:.1%}", flush=True)
    dist.destroy_process_group()
    return right.item() / sampler.total_size


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains a classifier of handwritten digits with FSDP2, over hvdrun's runtime.")
    parser.add_argument("--epochs", type=int, default=5)
    train(parser.parse_args().epochs)
