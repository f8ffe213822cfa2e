"""Training whose result does not depend on ranks that die: the others take over their shares of each batch.

    hvdrun -np 4 --min-np 1 examples/elastic_same_batch.py

Kill some ranks meanwhile: the printed losses do not change.  The data are scikit-learn's 1797 digits.
"""

from __future__ import annotations

import argparse
import time

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch.nn import functional
from torch.utils.data import TensorDataset

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
sampler = hvd.elastic.ElasticSampler(data)
loader = hvd.elastic.GlobalBatchLoader(data, batch_size=16, sampler=sampler)  # 16 for each rank of the first world
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run(keep_global_batch=True)
def train(state: hvd.elastic.TorchState) -> None:
    """Runs again after each change; the state holds everything that it needs to resume."""
    while state.epoch < options.epochs:
        for batch in loader:
            optimizer.zero_grad()
            losses = []
            for images, labels in batch:  # one micro-batch; more if ranks are missing
                losses.append(functional.cross_entropy(model(images), labels))
                losses[-1].backward()
            optimizer.step()
            state.loss = batch.mean(losses)
            time.sleep(options.pause)
            state.commit()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: {hvd.size()} ranks, loss {state.loss!r}", flush=True)
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, loss=0.0))
