"""A PyTorch training run that can be killed anywhere; its state has the samples that it has seen.

Variables as in elastic_counter.py.
"""

import json
import os
import pathlib
import sys
import time

import torch
from elastic_faults import die_if_told

import hvd.torch as hvd

SAMPLES, BATCH, EPOCHS = 192, 4, 2
FOLDER = pathlib.Path(os.environ["ELASTIC_FOLDER"])
PAUSE = float(os.environ.get("ELASTIC_PAUSE", "0.01"))
WANTED = int(os.environ.get("ELASTIC_WANTED", "0"))  # the last epoch begins with that many ranks, if given

hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters())
data = torch.arange(SAMPLES)
sampler = hvd.elastic.ElasticSampler(data, shuffle=True)


@hvd.elastic.run
def train(state):  # type: ignore[no-untyped-def]
    while state.epoch < EPOCHS:
        if state.epoch == EPOCHS - 1 and state.batch == 0:
            limit = time.monotonic() + 60
            while hvd.size() < WANTED and time.monotonic() < limit:
                time.sleep(0.05)
                state.check_host_updates()
        indices = list(iter(state.sampler))
        for at in range(0, len(indices), BATCH):
            mine = indices[at : at + BATCH]
            die_if_told(state.step)
            optimizer.zero_grad()
            loss = model(torch.full((len(mine), 4), float(sum(mine)))).sum() / 1e6
            loss.backward()
            optimizer.step()
            seen = hvd.allgather_object(mine)
            state.seen[state.epoch].extend(sample for part in seen for sample in part)
            state.sampler.record_batch(state.batch, len(mine))
            state.batch += 1
            state.step += 1
            if hvd.rank() == 0:
                with (FOLDER / "steps").open("a") as file:
                    file.write(f"{time.monotonic()} {state.step} {hvd.size()}\n")
            time.sleep(PAUSE)
            state.commit()
        state.epoch += 1
        state.batch = 0
        state.sampler.set_epoch(state.epoch)
        state.commit()


state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0, step=0, seen=[[] for _ in range(EPOCHS)])
train(state)
if hvd.rank() == 0:
    assert os.environ["HOROVOD_RANK"] == "0", os.environ["HOROVOD_RANK"]
    assert os.environ["HOROVOD_SIZE"] == str(hvd.size())
    print(json.dumps({"size": hvd.size(), "seen": state.seen, "step": state.step}))
    sys.stdout.flush()
