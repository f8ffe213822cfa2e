"""A script without any knowledge of hvdrun: torch.distributed with DistributedDataParallel, as torchrun starts it.

    hvdrun -np 2 examples/torch_ddp.py                                  # in place of: torchrun --nproc-per-node 2 …
    hvdrun -np 4 -H node1:2,node2:2 examples/torch_ddp.py               # in place of one torchrun on each node

hvdrun sets torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT …), so torch's own "env://" works.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(epochs: int) -> float:
    """Trains on handwritten digits; returns the accuracy of the last model."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        # With --gpus own a rank sees only its own GPU; otherwise, and under torchrun, it sees all.
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    right = torch.zeros((), device=device)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        right.zero_()
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
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
    parser = argparse.ArgumentParser(description="Trains a classifier of handwritten digits with torch's own DDP.")
    parser.add_argument("--epochs", type=int, default=5)
    train(parser.parse_args().epochs)
