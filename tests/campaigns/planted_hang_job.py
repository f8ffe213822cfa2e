"""hvdrun -np 2 planted_hang_job.py CASE CULPRIT: a job over torch's own gloo that hangs, or, for a few cases, does not.

The line at which the culprit stands is marked with the name of its case.  Nothing imports hvd.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from typing import Any

CASE, CULPRIT = sys.argv[1], int(sys.argv[2])
RANK = int(os.environ["RANK"])
IS_CULPRIT = RANK == CULPRIT
LONG = 120

if CASE == "import":
    if IS_CULPRIT:
        time.sleep(LONG)  # here: import

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, stuck_at: int) -> None:
        self.stuck_at = stuck_at

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.stuck_at:
            time.sleep(LONG)
        return torch.ones(8)


def steps(count: int = 5) -> None:
    for _ in range(count):
        dist.all_reduce(torch.ones(4))


def skips() -> None:
    for step in range(20):
        if step == 7 and IS_CULPRIT:
            continue
        dist.all_reduce(torch.ones(16))
    time.sleep(LONG if IS_CULPRIT else 0)  # here: skips


def order() -> None:
    steps()
    if IS_CULPRIT:
        dist.barrier()  # here: order
        dist.all_reduce(torch.ones(64))
    else:
        dist.all_reduce(torch.ones(64))
        dist.barrier()


def groups() -> None:
    """Two groups in another order."""
    first: Any = dist.new_group([0, 1], group_desc="first")
    second: Any = dist.new_group([0, 1], group_desc="second")
    for group in (second, first) if IS_CULPRIT else (first, second):
        dist.all_reduce(torch.ones(2), group=group)  # here: groups


def swallowed() -> None:
    steps()
    try:
        if IS_CULPRIT:
            raise ValueError("a bad sample")
        dist.all_reduce(torch.ones(5))
    except ValueError:
        time.sleep(LONG)  # here: swallowed


def loader() -> None:
    data = Samples(21 if IS_CULPRIT else -1)
    for batch in torch.utils.data.DataLoader(data, batch_size=4, num_workers=1):  # here: loader
        dist.all_reduce(batch.sum())


def barrier() -> None:
    steps()
    if not IS_CULPRIT:
        dist.barrier()
    threading.Event().wait(LONG)  # here: barrier


def subgroup() -> None:
    group: Any = dist.new_group([0, 1], group_desc="workers")
    dist.all_reduce(torch.ones(1), group=group)
    dist.broadcast(torch.ones(6), 0, group=None if IS_CULPRIT else group)  # here: subgroup


def evaluation() -> None:
    steps()
    if IS_CULPRIT:
        with torch.no_grad():
            time.sleep(LONG)  # here: evaluation
    dist.all_reduce(torch.ones(7))


def initless() -> None:
    """Is called before the group is made."""
    if IS_CULPRIT:
        time.sleep(LONG)  # here: initless


def crossed() -> None:
    """Both receive first."""
    steps()
    dist.recv(torch.ones(9), 1 - RANK)  # here: crossed
    dist.send(torch.ones(9), 1 - RANK)


def asks() -> None:
    steps()
    if IS_CULPRIT:
        read, _ = os.pipe()
        os.read(read, 1)  # here: asks
    dist.all_reduce(torch.ones(11))


def spins() -> None:
    steps()
    if IS_CULPRIT:
        end = time.monotonic() + LONG
        while time.monotonic() < end:  # here: spins
            pass
    dist.all_gather([torch.ones(2)] * 2, torch.ones(2))


def model() -> None:
    """One rank's loss does not depend on DDP's parameters any more: it never calls backward()."""
    net = DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(6):
        loss = net(torch.ones(2, 8)).sum()
        if step == 4 and IS_CULPRIT:
            time.sleep(LONG)  # here: model
        loss.backward()


def newgroup() -> None:
    steps()
    if IS_CULPRIT:
        time.sleep(LONG)  # here: newgroup
    dist.new_group([0, 1])


def objects() -> None:
    steps()
    if IS_CULPRIT:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire(timeout=LONG)  # here: objects
    gathered: list[Any] = [None, None]
    dist.all_gather_object(gathered, {"rank": RANK})


# Jobs that are well: nobody is to be blamed.


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


def main() -> None:
    case = globals()[CASE] if CASE != "import" else steps
    if CASE == "initless":
        case()
    if CASE == "world" and IS_CULPRIT:
        os.environ["WORLD_SIZE"] = "3"
    if CASE == "address" and IS_CULPRIT:
        os.environ["MASTER_ADDR"] = "127.0.0.2"
    if CASE == "port" and RANK == 1:
        os.environ["MASTER_PORT"] = "1"
    if CASE == "rankless":
        os.environ["RANK"] = str(RANK + 1)
        os.environ["WORLD_SIZE"] = "3"
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=LONG))  # here: init
    case()
    if dist.is_initialized():
        dist.destroy_process_group()


def world() -> None: ...


address = port = rankless = world

if __name__ == "__main__":
    main()
