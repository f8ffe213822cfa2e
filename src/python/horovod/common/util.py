"""Names that scripts import from horovod.common.util."""

from __future__ import annotations

import re
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version_of
from importlib.util import find_spec
from typing import Any

from hvd._runtime import environment as _environment
from hvd._runtime.world import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    mpi_built,
    nccl_built,
    rocm_built,
)
from hvd.exceptions import HorovodVersionMismatchError

__all__ = [
    "EXTENSIONS",
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "cuda_built",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "get_ext_suffix",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "rocm_built",
    "split_list",
]

EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """A cached f.  Scripts for Horovod decorate with it."""
    return cache(f)


def get_ext_suffix() -> str:
    """The suffix of this interpreter's compiled modules."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether "torch" or another framework can be used. hvd needs no extension compiled for a framework, so an
    installed framework is enough."""
    return ext_base_name in EXTENSIONS and find_spec(ext_base_name) is not None


def check_extension(ext_name: str, *_: str) -> None:
    """ImportError if the framework of "horovod.torch" or another package cannot be used."""
    name = ext_name.rpartition(".")[2]
    if not extension_available(name):
        raise ImportError(f"{ext_name} cannot be used: {name} is not installed")


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Checks the framework's version.  A different version causes a warning, or HorovodVersionMismatchError if an exception is
    given.

    Horovod compares with the version for which it was compiled.  Nothing is compiled here, so the installed version counts.
    """
    try:
        installed: str | None = _version_of(name)
    except PackageNotFoundError:
        installed = None
    if installed != version:
        error = HorovodVersionMismatchError(name, version, installed)
        if exception is not None:
            raise error from exception
        warnings.warn(str(error), stacklevel=2)


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[int | None, bool | None], int]:
    """A function of (op, average) that returns the reduce op; average is the older argument."""
    from hvd._runtime.arguments import reduce_op

    return reduce_op


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Returns whether version ver is target or later.  ValueError for a target that is not major.minor.patch."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions are strings, not {ver!r} and {target!r}")
    if target.count(".") != 2:
        raise ValueError(f"the version to compare with must be major.minor.patch, not {target!r}")

    def numbers(text: str) -> list[int]:
        release = re.match(r"[0-9.]*", text.split("+")[0])
        parts = [int(part) for part in (release.group() if release else "").split(".") if part]
        return [*parts, 0, 0, 0][: max(3, len(parts))]

    return numbers(ver) >= numbers(target)


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether the framework sees a GPU."""
    if ext_base_name == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets environment variables within a `with`; None leaves a variable unchanged."""
    wanted = {key: value for key, value in kwargs.items() if value is not None}
    before = {key: _environment.whole.get(key) for key in wanted}
    _environment.whole.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                _environment.whole.pop(key, None)
            else:
                _environment.whole[key] = value


def is_iterable(x: Any) -> bool:
    """Returns whether x is iterable."""
    return hasattr(x, "__iter__") or hasattr(x, "__getitem__")


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether the number is 1, 2, 4, ..."""
    return num_rank > 0 and not num_rank & (num_rank - 1)


def split_list(l: Sequence[Any], n: int) -> list[Sequence[Any]]:  # noqa: E741
    """Cuts a list into n parts, whose lengths differ by one at most, the longer ones first."""
    ends = [len(l) // n * i + min(i, len(l) % n) for i in range(n + 1)]
    return [l[start:end] for start, end in zip(ends, ends[1:])]
