"""Training that goes on when ranks die, and when hosts are added or removed.

    hvdrun -np 3 --min-np 1 examples/elastic_torch.py

Kill a rank meanwhile: the others resume from the last commit, and a new one takes its place. The data are scikit-learn's 1797
digits. Each digit is used once an epoch, with any number of ranks.
"""

from __future__ import annotations

import argparse
import time

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import hvd.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--pause", type=float, default=0.0, help="seconds after each batch, to have time for killing")
options = parser.parse_args()

hvd.init()
torch.manual_seed(1)
torch.set_num_threads(1)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
sampler = hvd.elastic.ElasticSampler(data)  # divides the rest of an epoch among the present ranks
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
rate = 0.05
optimizer = torch.optim.SGD(model.parameters(), lr=rate * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Runs again after each change; the state holds everything that it needs to resume."""
    while state.epoch < options.epochs:
        for images, labels in DataLoader(data, batch_size=16, sampler=sampler):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            sampler.record_batch(state.batch, len(images))
            state.batch += 1
            time.sleep(options.pause)
            state.commit()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: {hvd.size()} ranks, loss {loss.item():.3f}", flush=True)
        state.epoch += 1
        state.batch = 0
        sampler.set_epoch(state.epoch)
        state.commit()


def on_reset() -> None:
    """Sets the learning rate for the new number of ranks."""
    for group in optimizer.param_groups:
        group["lr"] = rate * hvd.size()


state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)
state.register_reset_callbacks([on_reset])
train(state)
