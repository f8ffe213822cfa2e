"""The training of the two torch jobs of slowness.py: synthetic rows through a small network."""

from __future__ import annotations

from collections.abc import Callable

import torch

import hvd.torch as hvd


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of ones; `read` delays each as the job wants."""

    def __init__(self, rows: int, read: Callable[[int], None]) -> None:
        self._rows, self._read = rows, read

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> torch.Tensor:
        self._read(index)
        return torch.ones(256)


def model_and_optimizer() -> tuple[torch.nn.Sequential, torch.optim.Optimizer]:
    """A model and its optimizer, the same on all ranks."""
    layers = [torch.nn.Linear(256, 640), torch.nn.ReLU(), torch.nn.Linear(640, 640), torch.nn.ReLU(), torch.nn.Linear(640, 8)]
    model = torch.nn.Sequential(*layers)
    sgd = torch.optim.SGD(model.parameters(), lr=0.001)
    return model, hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())


def work(times: int) -> None:
    """Computes for about 0.15 ms each time."""
    x = torch.ones(160, 160)
    for _ in range(times):
        x = (x @ x).clamp(0, 1)
