"""Names that scripts import from horovod.common.util."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from hvd._world import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    mpi_built,
    nccl_built,
    rocm_built,
)

__all__ = [
    "ccl_built",
    "check_extension",
    "cuda_built",
    "ddl_built",
    "env",
    "extension_available",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "rocm_built",
    "split_list",
]


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether "torch" or "tensorflow" can be used: there is nothing to compile for them here, they must be installed."""
    return ext_base_name in ("tensorflow", "torch") and find_spec(ext_base_name) is not None


def check_extension(ext_name: str, *_: str) -> None:
    """ImportError when the framework of "horovod.torch" or its like cannot be used."""
    name = ext_name.rpartition(".")[2]
    if not extension_available(name):
        raise ImportError(f"{ext_name} cannot be used: {name} is not installed")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework sees a GPU."""
    if ext_base_name == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Environment variables for the time of a `with`; None leaves one as it is."""
    wanted = {key: value for key, value in kwargs.items() if value is not None}
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def is_iterable(x: Any) -> bool:
    """Whether one can iterate over it."""
    return hasattr(x, "__iter__") or hasattr(x, "__getitem__")


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether it is 1, 2, 4, ..."""
    return num_rank > 0 and not num_rank & (num_rank - 1)


def split_list(l: Sequence[Any], n: int) -> list[Sequence[Any]]:  # noqa: E741
    """Cuts a list into n parts, whose lengths differ by one at most, the longer ones first."""
    ends = [len(l) // n * i + min(i, len(l) % n) for i in range(n + 1)]
    return [l[start:end] for start, end in zip(ends, ends[1:])]
