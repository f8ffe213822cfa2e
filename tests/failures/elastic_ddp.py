"""Trains by DistributedDataParallel over "hvd" in an elastic job: ELASTIC_VICTIM, a rank, is killed in its first world.

The job ends once three ranks have trained together again. ELASTIC_PLAIN: without hvd.elastic.run.
"""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hvd.torch as hvd

VICTIM, SIZE = int(os.environ["ELASTIC_VICTIM"]), 3
hvd.init()
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
state = hvd.elastic.TorchState(model, optimizer, step=0, worlds=[])


def train(state):
    dist.init_process_group("hvd", init_method="hvd://")
    network = DistributedDataParallel(state.model, bucket_cap_mb=0.005)
    state.worlds.append(dist.get_world_size())
    pair = dist.new_group([0, 1])
    last = max(20, state.step + 5)  # all take part in each world, until the pair's process set exists
    while state.step < last or dist.get_world_size() < SIZE:
        state.optimizer.zero_grad()
        loss = network(torch.ones(4, 32)).pow(2).mean()
        if state.step == 12 and state.worlds == [SIZE] and dist.get_rank() == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        state.optimizer.step()
        state.step += 1
        if dist.get_rank() < 2:
            dist.all_reduce(torch.ones(1), group=pair)
        if state.step % 5 == 0:
            state.commit()
        if dist.get_world_size() < SIZE:
            time.sleep(0.02)
    dist.destroy_process_group()


(train if os.environ.get("ELASTIC_PLAIN") else hvd.elastic.run(train))(state)
print("done", hvd.size(), state.worlds, hvd.allreduce(model[0].weight.detach().sum()).item(), flush=True)
