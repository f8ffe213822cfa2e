"""hvdrun -np 2 planted_hang_job.py CASE CULPRIT: a job over torch's own gloo that hangs; PLANTED_BACKEND names another one.

Over NCCL all tensors are on GPU 0, and each rank ends with a wait for that GPU.  The line at which the culprit stands is
marked with the name of its case.  Nothing imports hvd.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import itertools
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
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
            time.sleep(LONG)  # here: collate
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
    """Both ranks receive before they send."""
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


def collate() -> None:
    """The DataLoader has no worker: the data set itself hangs."""
    for batch in torch.utils.data.DataLoader(Samples(13 if IS_CULPRIT else -1), batch_size=4):
        dist.all_reduce(batch.sum())


def branch() -> None:
    """One rank's loss is not finite, and it leaves the step."""
    for step in range(9):
        loss = torch.tensor(float("nan") if step == 4 and IS_CULPRIT else 1.0)
        if not torch.isfinite(loss):
            break
        dist.all_reduce(loss)
    threading.Event().wait(LONG if IS_CULPRIT else 0)  # here: branch


def checkpoint() -> None:
    """The culprit waits for a file that no process writes."""
    steps()
    while IS_CULPRIT and not os.path.exists("/nonexistent/epoch1.pt"):
        time.sleep(0.2)  # here: checkpoint
    dist.barrier()


def locked() -> None:
    """Two threads take two locks in another order."""
    steps()
    first, second = threading.Lock(), threading.Lock()

    def other() -> None:
        with second:
            time.sleep(0.5)
            first.acquire(timeout=LONG)

    if IS_CULPRIT:
        threading.Thread(target=other, daemon=True).start()
        with first:
            time.sleep(0.3)
            second.acquire(timeout=LONG)  # here: locked
    dist.all_reduce(torch.ones(3))


def child() -> None:
    steps()
    if IS_CULPRIT:
        subprocess.run(["sleep", str(LONG)])  # here: child
    dist.all_reduce(torch.ones(12))


def listens() -> None:
    steps()
    if IS_CULPRIT:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            server.accept()  # here: listens
    dist.broadcast(torch.ones(3), 0)


def sends() -> None:
    """A rank waits for a message that the culprit never sends."""
    steps()
    if IS_CULPRIT:
        time.sleep(LONG)  # here: sends
    dist.recv(torch.ones(5), 1 - RANK)


def reduces() -> None:
    steps()
    if IS_CULPRIT:
        queue.Queue().get(timeout=LONG)  # here: reduces
    dist.reduce(torch.ones(6), CULPRIT)


def scatters() -> None:
    steps()
    if IS_CULPRIT:
        select.select([], [], [], LONG)  # here: scatters
    dist.scatter(torch.ones(2), [torch.ones(2)] * 2 if IS_CULPRIT else None, src=CULPRIT)


def gathers() -> None:
    steps()
    out = [torch.empty(3) for _ in range(2)]
    if IS_CULPRIT:
        signal.sigtimedwait([signal.SIGUSR2], LONG)  # here: gathers
    dist.gather(torch.ones(3), out if IS_CULPRIT else None, CULPRIT)


def asynchronous() -> None:
    steps()
    if IS_CULPRIT:
        time.sleep(LONG)  # here: asynchronous
    work: Any = dist.all_reduce(torch.ones(21), async_op=True)
    work.wait()


def buffers() -> None:
    """DDP broadcasts buffers before the forward pass: the culprit does not come to its third."""
    net = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
    for step in range(4):
        if step == 2 and IS_CULPRIT:
            time.sleep(LONG)  # here: buffers
        net(torch.ones(2, 4)).sum().backward()


def constructs() -> None:
    """Only some ranks make the model."""
    steps()
    if IS_CULPRIT:
        time.sleep(LONG)  # here: constructs
    DistributedDataParallel(torch.nn.Linear(3, 3))


def monitored() -> None:
    steps()
    if IS_CULPRIT:
        time.sleep(LONG)  # here: monitored
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=LONG))


def destroys() -> None:
    """One rank ends the group early and works on."""
    steps()
    if IS_CULPRIT:
        time.sleep(LONG)  # here: destroys
    for _ in range(3):
        dist.all_reduce(torch.ones(31))


def pool() -> None:
    steps()
    if IS_CULPRIT:
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            threads.submit(time.sleep, LONG).result()  # here: pool
    dist.all_reduce(torch.ones(13))


def stopped() -> None:
    steps()
    if IS_CULPRIT:
        os.kill(os.getpid(), signal.SIGSTOP)  # here: stopped
    dist.all_reduce(torch.ones(14))


def computes() -> None:
    """An endless loop in C that never gives Python's lock back."""
    steps()
    if IS_CULPRIT:
        sum(itertools.repeat(1))  # here: computes
    dist.all_reduce(torch.ones(15))


def sources() -> None:
    """Each rank believes that the other one has the best weights."""
    steps()
    dist.broadcast(torch.ones(6), src=1 - RANK)  # here: sources


def destinations() -> None:
    steps()
    dist.reduce(torch.ones(6), dst=RANK)  # here: destinations


def handles() -> None:
    """Like sources(), with async_op=True: the hang is in wait()."""
    steps()
    work: Any = dist.broadcast(torch.ones(6), src=1 - RANK, async_op=True)
    work.wait()  # here: handles


def main(case: Callable[[], None]) -> None:
    if CASE == "initless":
        case()
    if CASE == "world" and IS_CULPRIT:
        os.environ["WORLD_SIZE"] = "3"
    if CASE == "address" and IS_CULPRIT:
        os.environ["MASTER_ADDR"] = "no-such-host.invalid"
    if CASE == "port" and RANK == 1:
        os.environ["MASTER_PORT"] = "1"
    if CASE == "rankless":
        os.environ["RANK"] = str(RANK + 1)
        os.environ["WORLD_SIZE"] = "3"
    backend = os.environ.get("PLANTED_BACKEND", "gloo")
    if backend == "hvd":
        import_module("hvd.torch")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=LONG))  # here: rankless
    if backend == "nccl":
        torch.set_default_device("cuda:0")
    case()
    if backend == "nccl":
        torch.cuda.synchronize()
    if dist.is_initialized():
        dist.destroy_process_group()


def world() -> None:
    dist.all_reduce(torch.ones(1))


address = port = rankless = world

if __name__ == "__main__":
    main(globals()[CASE] if CASE != "import" else steps)
