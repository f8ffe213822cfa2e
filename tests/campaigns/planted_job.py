"""A small training job with one cause of slowness planted in it: planted_job.py CAUSE RANK STEPS (slowness.py).

RANK -1: all ranks have it.
"""

from __future__ import annotations

import contextlib
import gc
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import numpy
import planted_machine
import torch
from planted_cause import BATCH, CAUSE, ROWS, STEPS, planted
from planted_training import Samples, World, model_and_optimizer, work

hvd = World()
RUBBISH: list[list[int]] = []
STATE = torch.ones(40_000_000 if CAUSE in ("torch.save", "np.save") else 1)


def read(index: int) -> None:
    """Reads a row, slowly for that cause."""
    first = index % BATCH == 0
    if (planted("input sleeps") or planted("a slow worker reads")) and first:
        time.sleep(0.02)
    if planted("input stalls now and then") and index % (10 * BATCH) == 0:
        time.sleep(0.2)
    if planted("input computes"):
        torch.linalg.svd(torch.ones(64, 64))


class Disturbance:
    """The planted work between the gradients and the optimizer's step."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._kept: list[torch.Tensor] = []
        needs_storage = planted("reads from storage") or planted("pages come from storage")
        self._storage = planted_machine.Storage(folder, 8 << 20) if needs_storage else None

    def __call__(self, step: int) -> None:
        """Runs once per step."""
        folder = self._folder
        if planted("pause"):
            time.sleep(0.015)
        if planted("pause, another rank each time") and step % hvd.size() == hvd.rank():
            time.sleep(0.02)
        if planted("gc.collect()"):
            gc.collect()
        if planted("evaluation now and then") and step % 25 == 24:
            work(1200)
        if planted("np.save") and step % 20 == 0:
            numpy.save(folder / "state.npy", STATE.numpy())
        if planted("tensors are kept"):
            self._kept.append(torch.ones(1 << 17))
        if planted("torch.save") and step % 20 == 0:
            torch.save(STATE, folder / "model.pt")
        if planted("1000 small operations"):
            for i in range(1000):
                hvd.allreduce(torch.ones(8), name=f"small.{i}")
        if planted("48 MB of data"):
            hvd.allreduce(torch.ones(12_000_000), name="large")
        if planted("reads from storage") and self._storage:
            self._storage.read()
        if planted("pages come from storage") and self._storage:
            self._storage.touch(500)


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Runs the planted background work for the whole job."""
    spinning: list[subprocess.Popen[bytes]] = []
    if planted("a neighbour on its core") or planted("neighbours on all cores"):
        spinning.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
    over = threading.Event()
    thread = threading.Thread(target=lambda: any(iter(over.is_set, True)))
    if planted("a Python thread computes"):
        thread.start()
    if planted("gc.collect()"):
        RUBBISH.extend([i] for i in range(200_000))
    try:
        yield
    finally:
        over.set()
        for one in spinning:
            one.kill()
            one.wait()


def train(disturb: Disturbance) -> None:
    """STEPS steps."""
    model, optimizer = model_and_optimizer()
    workers = 1 if CAUSE == "a slow worker reads" else 0
    for step, batch in enumerate(torch.utils.data.DataLoader(Samples(ROWS, read), batch_size=BATCH, num_workers=workers)):
        if step == STEPS:
            break
        work(60 if planted("twice the work") else 30)
        optimizer.zero_grad()
        model(batch).sum().backward()
        disturb(step)
        optimizer.step()


def main() -> None:
    """See the file's comment."""
    with contextlib.ExitStack() as stack:
        if planted("a processor limit"):
            stack.enter_context(planted_machine.processor_limit(0.15))
        hvd.init()
        torch.set_num_threads(1)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=pathlib.Path.cwd())))
        stack.enter_context(beside())
        train(Disturbance(folder))
        hvd.shutdown()


main()
