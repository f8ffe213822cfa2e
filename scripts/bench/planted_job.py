"""A small training job with one cause of slowness planted in it: planted_job.py CAUSE RANK STEPS (scripts/bench/planted.py).

RANK -1: all ranks have it.
"""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

import hvd.torch as hvd

CAUSE, WHO, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
BATCH = 16
RUBBISH: list[list[int]] = []
STATE = torch.ones(40_000_000 if CAUSE == "torch.save" else 1)


def planted(cause: str) -> bool:
    """Whether this rank has that cause."""
    return cause == CAUSE and WHO in (-1, hvd.rank())


class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Made-up rows, slowly read where that is the cause."""

    def __len__(self) -> int:
        return BATCH * (STEPS + 1)

    def __getitem__(self, index: int) -> torch.Tensor:
        if planted("input sleeps") and index % BATCH == 0:
            time.sleep(0.02)
        if planted("input stalls now and then") and index % (10 * BATCH) == 0:
            time.sleep(0.2)
        if planted("input computes"):
            torch.linalg.svd(torch.ones(64, 64))
        return torch.ones(256)


def disturb(optimizer: torch.optim.Optimizer, step: int, kept: list[torch.Tensor], folder: pathlib.Path) -> None:
    """What is planted between the gradients and the optimizer's step."""
    if planted("pause"):
        time.sleep(0.015)
    if planted("pause, another rank each time") and step % hvd.size() == hvd.rank():
        time.sleep(0.02)
    if planted("gc.collect()"):
        gc.collect()
    if planted("tensors are kept"):
        kept.append(torch.ones(1 << 18))
    if planted("torch.save") and step % 20 == 0:
        torch.save(STATE, folder / "model.pt")
    if planted("1000 small operations"):
        for i in range(1000):
            hvd.allreduce(torch.ones(8), name=f"small.{i}")
    if planted("48 MB of data"):
        hvd.allreduce(torch.ones(12_000_000), name="large")


def main() -> None:
    """Trains for STEPS steps."""
    hvd.init()
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(256, 640), torch.nn.ReLU(), torch.nn.Linear(640, 640), torch.nn.ReLU(), torch.nn.Linear(640, 8)]
    model = torch.nn.Sequential(*layers)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.001), named_parameters=model.named_parameters()
    )
    neighbour = None
    if planted("a neighbour on its core"):
        neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    if planted("gc.collect()"):
        RUBBISH.extend([i] for i in range(200_000))
    kept: list[torch.Tensor] = []
    work = torch.ones(160, 160)
    with tempfile.TemporaryDirectory() as folder:
        for step, batch in enumerate(torch.utils.data.DataLoader(Samples(), batch_size=BATCH)):
            if step == STEPS:
                break
            for _ in range(30 * (2 if planted("twice the work") else 1)):
                work = (work @ work).clamp(0, 1)
            optimizer.zero_grad()
            model(batch).sum().backward()
            disturb(optimizer, step, kept, pathlib.Path(folder))
            optimizer.step()
    if neighbour:
        neighbour.kill()
        neighbour.wait()


main()
