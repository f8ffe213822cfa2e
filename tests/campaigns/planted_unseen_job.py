"""The other training job of slowness.py: causes that the report's rules were not written for.

planted_unseen_job.py CAUSE RANK STEPS; RANK -1: all ranks have it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from planted_cause import BATCH, CAUSE, ROWS, STEPS, planted
from planted_training import Samples, World, model_and_optimizer, work

hvd = World()

LINE = b"x" * 4096
SLOW_READER = "import sys, time\nwhile sys.stdin.buffer.read(16384): time.sleep(0.01)"
HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "w") as file:
    while True:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(0.03)
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(0.001)
"""


def read(index: int) -> None:
    """Reads a row that needs changes, as long as that takes."""
    if CAUSE == "fewer workers than the others" and index % BATCH == 0:
        time.sleep(0.02)
    if planted("augmentation that grows"):
        end = time.perf_counter() + 1e-3 * index / ROWS
        while time.perf_counter() < end:
            pass


class Nuisance:
    """The planted work of each step, between the gradients and the optimizer's step."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._random = random.Random(hvd.rank())
        self._log = (folder / "log").open("wb")
        self._lock = (folder / "lock").open("w")
        self._pipe: Any = None
        self._rows = [(float(i), i) for i in range(100_000 if planted("pickles now and then") else 0)]
        self._started: list[subprocess.Popen[bytes]] = []
        if planted("logs into a slow pipe"):
            self._start("-c", SLOW_READER)
            self._pipe = self._started[0].stdin
        if planted("a lock that another process holds"):
            self._start("-c", HOLDER, str(folder / "lock"))
        if planted("a low priority, and a neighbour"):
            os.nice(19)
            self._start("-c", "while True: pass")

    def _start(self, *argv: str) -> None:
        self._started.append(subprocess.Popen([sys.executable, *argv], stdin=subprocess.PIPE))

    def end(self) -> None:
        """Removes everything."""
        for one in self._started:
            one.kill()
            one.wait()

    def __call__(self, step: int) -> None:
        """Runs once per step."""
        if self._pipe:
            for _ in range(6):
                self._pipe.write(LINE)
            self._pipe.flush()
        if planted("a lock that another process holds"):
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        if planted("sorts a copy in NumPy"):
            numpy.sort(torch.rand(200_000).numpy().copy())
        if planted("validation on one rank") and step % 25 == 24:
            work(1000)
        if planted("pickles now and then") and step % 10 == 0:
            (self._folder / "state").write_bytes(pickle.dumps(self._rows))
        if planted("a pause of all"):
            time.sleep(0.015)
        if planted("work of random length"):
            work(self._random.randrange(120))
        if planted("a log that goes to the disk each time"):
            for _ in range(4):
                self._log.write(LINE)
                self._log.flush()
                os.fsync(self._log.fileno())
        if planted("allocates and frees"):
            torch.ones(24_000_000)


def batches() -> Iterator[torch.Tensor]:
    """Batches from a loader, or from the program's own generator."""
    if CAUSE == "a generator of its own":
        while True:
            if planted(CAUSE):
                time.sleep(0.02)
            yield torch.ones(BATCH, 256)
    workers = 0
    if CAUSE == "fewer workers than the others":
        workers = 1 if planted(CAUSE) else 8
    yield from torch.utils.data.DataLoader(Samples(ROWS, read), batch_size=BATCH, num_workers=workers)


def train(nuisance: Nuisance) -> None:
    """STEPS steps."""
    model, optimizer = model_and_optimizer()
    if planted("a hook that sleeps"):
        model[2].register_full_backward_hook(lambda *_: time.sleep(0.01))
    alike = torch.nn.Linear(256, 2000)  # not one of the optimizer's
    for step, batch in enumerate(batches()):
        if step == STEPS:
            break
        work(30)
        for _ in range(20 if planted("more passes than the others") else 0):
            alike(batch).sum().backward()
        optimizer.zero_grad()
        model(batch).sum().backward()
        nuisance(step)
        optimizer.step()


def main() -> None:
    """See the file's comment."""
    hvd.init()
    torch.set_num_threads(8 if planted("more threads than cores") else 1)
    if planted("one core for all ranks"):
        os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd()) as folder, contextlib.ExitStack() as stack:
        nuisance = Nuisance(pathlib.Path(folder))
        stack.callback(nuisance.end)
        train(nuisance)
    hvd.shutdown()


main()
