"""Training with keep_global_batch=True: its output must not depend on the killed ranks and the times of their deaths.

Variables as in elastic_counter.py; die_if_told() runs before each micro-batch, so some ranks die between two of them.
BATCHES_SHARES: the number of shares, if it differs from the number of the first world's ranks.
"""

import hashlib
import json
import os
import pathlib
import sys
import time

import torch
from elastic_faults import die_if_told

import hvd.torch as hvd
from hvd._elastic import shares as _shares

SAMPLES, BATCH, EPOCHS = 157, 3, 2  # with four shares: 13 batches and one of a single sample
FOLDER = pathlib.Path(os.environ["ELASTIC_FOLDER"])
PAUSE = float(os.environ.get("ELASTIC_PAUSE", "0"))
WANTED = int(os.environ.get("ELASTIC_WANTED", "0"))  # the last epoch begins with that many ranks, if given

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(1)
_shares.keep(int(os.environ.get("BATCHES_SHARES", "0")))


class Model(torch.nn.Module):
    """Dropout, a sparse gradient, one of some micro-batches only, one of none, and one in another order."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(20, 6, sparse=True)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, 33), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(33, 1)
        )
        self.rare = torch.nn.Parameter(torch.ones(5))
        self.never = torch.nn.Parameter(torch.ones(5))
        self.turned = torch.nn.Parameter(torch.ones(7, 33).t())

    def forward(self, numbers):
        hidden = self.layers[:3](self.words(numbers % 20))
        out = self.layers[3](hidden).squeeze(1) + 0.01 * (hidden @ self.turned).sum(1)
        return out + self.rare.sum() if int(numbers[0]) % 5 == 0 else out


data = torch.arange(SAMPLES)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(data, seed=3)
loader = hvd.elastic.GlobalBatchLoader(data, BATCH, sampler=sampler)


def wait_for_others(state):
    limit = time.monotonic() + 60
    while hvd.size() < WANTED and time.monotonic() < limit:
        time.sleep(0.05)
        state.check_host_updates()


@hvd.elastic.run(keep_global_batch=True)
def train(state):
    while state.epoch < EPOCHS:
        if state.epoch == EPOCHS - 1 and not sampler.processed_num:
            wait_for_others(state)
        for batch in loader:
            optimizer.zero_grad()
            losses, seen = [], []
            for numbers in batch:
                die_if_told(state.step)
                loss = (model(numbers) - torch.sin(numbers.float())).pow(2).mean()
                loss.backward()
                losses.append(loss)
                seen += numbers.tolist()
            die_if_told(state.step)
            optimizer.step()
            state.losses.append(batch.mean(losses).hex())
            state.seen[state.epoch] += [sample for part in hvd.allgather_object(seen) for sample in part]
            state.sizes.append(hvd.size())
            state.step += 1
            if hvd.rank() == 0:
                with (FOLDER / "steps").open("a") as file:
                    file.write(f"{time.monotonic()} {state.step} {hvd.size()}\n")
            time.sleep(PAUSE)
            state.commit()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


values = {"epoch": 0, "step": 0, "losses": [], "sizes": [], "seen": [[] for _ in range(EPOCHS)]}
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, **values)
train(state)
assert all(sorted(seen) == list(range(SAMPLES)) for seen in state.seen)
assert model.never.grad is None and model.turned.grad.stride() == model.turned.stride()
if hvd.rank() == 0:
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    found = {"losses": state.losses, "weights": hashlib.sha256(weights).hexdigest(), "sizes": state.sizes, "seen": state.seen}
    print(json.dumps(found))
    sys.stdout.flush()
