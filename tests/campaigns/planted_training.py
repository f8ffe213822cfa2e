"""The training of the two torch jobs of slowness.py: synthetic rows through a small network.

PLANTED_BACKEND says what sums the gradients: hvd.torch (the default), or torch's DistributedDataParallel over gloo or hvd.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module

import torch
from planted_cause import ON_A_DEVICE

BACKEND = os.environ.get("PLANTED_BACKEND", "hvd.torch")
if BACKEND == "hvd.torch":
    import hvd.torch as hvd


class World:
    """The functions of hvd.torch that the jobs use, over any backend."""

    def init(self) -> None:
        if BACKEND == "hvd.torch":
            hvd.init()
        else:
            if BACKEND == "hvd":
                import_module("hvd.torch")  # an installed package registers the backend by itself
            torch.distributed.init_process_group(BACKEND)

    def rank(self) -> int:
        return int(os.environ["HOROVOD_RANK"])

    def size(self) -> int:
        return int(os.environ["HOROVOD_SIZE"])

    def allreduce(self, tensor: torch.Tensor, name: str) -> None:
        if BACKEND == "hvd.torch":
            hvd.allreduce(tensor, name=name)
        else:
            torch.distributed.all_reduce(tensor)

    def shutdown(self) -> None:
        if BACKEND == "hvd.torch":
            hvd.shutdown()
        else:
            torch.distributed.destroy_process_group()


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of ones; `read` delays each as the job wants."""

    def __init__(self, rows: int, read: Callable[[int], None]) -> None:
        self._rows, self._read = rows, read

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> torch.Tensor:
        self._read(index)
        return torch.ones(256)


def model_and_optimizer() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model and its optimizer, the same on all ranks."""
    layers = [torch.nn.Linear(256, 640), torch.nn.ReLU(), torch.nn.Linear(640, 640), torch.nn.ReLU(), torch.nn.Linear(640, 8)]
    model = torch.nn.Sequential(*layers)
    sgd = torch.optim.SGD(model.parameters(), lr=0.001)
    if BACKEND == "hvd.torch":
        return model, hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())
    return torch.nn.parallel.DistributedDataParallel(model), sgd


def work(times: int) -> None:
    """Computes for about 0.15 ms each time."""
    if ON_A_DEVICE:
        time.sleep(times * 0.15e-3)
        return
    x = torch.ones(160, 160)
    for _ in range(times):
        x = (x @ x).clamp(0, 1)
