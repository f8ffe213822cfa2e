"""hvdrun -np 2 planted_healthy_job.py CASE CULPRIT: a healthy job over torch's own gloo, with pauses.

hvdrun must blame no rank.  "Culprit" is the rank for which the other rank waits a while.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import torch
import torch.distributed as dist
from planted_hang_job import CASE, IS_CULPRIT, RANK, Samples, main, steps
from torch.nn.parallel import DistributedDataParallel


def healthy_checkpoint() -> None:
    """The checkpoint goes to a pipe that is read late."""
    steps()
    if IS_CULPRIT:
        reader = subprocess.Popen(["sh", "-c", f"sleep 10; cat > {os.devnull}"], stdin=subprocess.PIPE)
        assert reader.stdin
        with reader:
            torch.save(torch.ones(1_000_000), reader.stdin)
    steps()


def healthy_compile() -> None:
    steps()
    if IS_CULPRIT:
        many(torch.ones(4))
    steps()


@torch.compile(backend="eager")
def many(values: torch.Tensor) -> torch.Tensor:
    for number in range(3000):
        values = values + number
    return values


def healthy_loader() -> None:
    for batch in torch.utils.data.DataLoader(Samples(-1), batch_size=8, num_workers=2):
        time.sleep(1.2)
        dist.all_reduce(batch.sum())


def healthy_model() -> None:
    net = DistributedDataParallel(torch.nn.Linear(64, 64))
    end = time.monotonic() + 10
    for _ in range(1_000_000):
        net(torch.ones(8, 64)).sum().backward()
        flag = torch.tensor(float(time.monotonic() < end))
        dist.all_reduce(flag, dist.ReduceOp.MIN)
        if not flag.item():
            break


def healthy_pairs() -> None:
    for _ in range(6):
        time.sleep(1.5)
        if RANK == 0:
            dist.send(torch.ones(2), 1)
        else:
            dist.recv(torch.ones(2), 0)


def healthy_uneven() -> None:
    """One rank works longer in each step, below the patience."""
    for _ in range(4):
        time.sleep(3.5 if IS_CULPRIT else 0)
        dist.all_reduce(torch.ones(4))


def healthy_long() -> None:
    """Long steps, alike on all ranks."""
    for _ in range(3):
        time.sleep(6.5)
        dist.all_reduce(torch.ones(4))


def healthy_evaluation() -> None:
    """One rank computes in a function with that name, longer than hvdrun's patience."""
    steps()
    if IS_CULPRIT:
        evaluate(11)
    steps()


def evaluate(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.ones(64, 64) @ torch.ones(64, 64)  # here: healthy_evaluation


def healthy_queued() -> None:
    """Over NCCL only: the GPU computes for a long time before it comes to a collective that all ranks have enqueued."""
    steps()
    wait: Any = torch.cuda._sleep
    wait(12_000_000_000)  # cycles
    steps()


def healthy_short() -> None:
    end = time.monotonic() + 12
    flag = torch.ones(1)
    while flag.item() > 0:
        flag.fill_(float(time.monotonic() < end))
        dist.broadcast(flag, 0)


def healthy_end() -> None:
    """The ranks end at different times, after their last collective."""
    steps()
    dist.destroy_process_group()
    time.sleep(9 if IS_CULPRIT else 0)


if __name__ == "__main__":
    main(globals()[CASE])
