"""Two more interfaces for running a function on all ranks: the decorator @distributed, and a class like TorchDistributor.

Both call hvd.spark.run, or hvd.run for ranks on the driver.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, Callable, Generic, TypeVar

R = TypeVar("R")

GPU_AMOUNT = "spark.task.resource.gpu.amount"

__all__ = ["DistributedFunction", "TorchDistributor", "distributed"]


def distributed(
    np: int = 0, *, gpus: int | None = None, **options: Any
) -> Callable[[Callable[..., R]], DistributedFunction[R]]:
    """Marks a function for many ranks: after `@distributed(np=8, gpus=1)`, `train.distributed(lr=0.1)` runs it on 8 ranks.

    np: number of ranks, each in a task of one barrier stage. 0: one for every slot.  Negative: -np ranks on the driver.  gpus:
    the GPUs that each task must have, 1 or 0; None: those that Spark gives it.  options: keywords of hvd.spark.run (hvd.run for
    negative np).  `train(lr=0.1)` still calls the function here.

    Errors: TypeError and ValueError for other numbers, when the function is marked.
    """
    _check_np(np)
    if gpus not in (None, 0, 1):
        raise ValueError(f"gpus is {gpus!r}: a rank uses one GPU or none; np is the number of ranks")

    def mark(function: Callable[..., R]) -> DistributedFunction[R]:
        return DistributedFunction(function, np, gpus, options)

    return mark


class DistributedFunction(Generic[R]):
    """A function that distributed() has marked."""

    def __init__(self, function: Callable[..., R], np: int, gpus: int | None, options: dict[str, Any]) -> None:
        self._function, self._np, self._gpus, self._options = function, np, gpus, options
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Calls the function in this process."""
        return self._function(*args, **kwargs)

    def distributed(self, *args: Any, **kwargs: Any) -> list[R]:
        """Calls the function on every rank with these arguments; returns the results in rank order.

        Errors: as hvd.spark.run and hvd.run; ValueError where Spark's tasks have no GPU and gpus=1.
        """
        __tracebackhide__ = True  # IPython leaves this frame out
        return _run(self._function, args, kwargs, self._np, self._gpus, **self._options)


class TorchDistributor:
    """The signature of pyspark.ml.torch.distributor.TorchDistributor, with hvdrun's ranks in place of torchrun's.

    num_processes: ranks.  local_mode: on the driver, in place of the executors.  use_gpu: each rank has a GPU.
    """

    def __init__(self, num_processes: int = 1, local_mode: bool = True, use_gpu: bool = True) -> None:
        _check_np(num_processes)
        if num_processes < 1:
            raise ValueError(f"num_processes is {num_processes}: it must be at least 1")
        self.num_processes, self.local_mode, self.use_gpu = num_processes, local_mode, use_gpu

    def run(self, train_object: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> Any:
        """Calls train_object(*args, **kwargs) on every rank and returns rank 0's result.

        If train_object is a text, it is the path of a Python script that every host has. args are its command line, and the
        result is None.  Errors: as hvd.spark.run and hvd.run; TypeError for keywords with a script.
        """
        __tracebackhide__ = True  # IPython leaves this frame out
        function: Callable[..., Any] = run_script
        if callable(train_object):
            function = train_object
        elif kwargs:
            raise TypeError("a script takes a command line, no keywords: run(path, '--lr=0.1')")
        else:
            args = (os.fspath(train_object), [str(arg) for arg in args])
        np = -self.num_processes if self.local_mode else self.num_processes
        return _run(function, args, kwargs, np, int(self.use_gpu), only=0)[0]


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Runs a Python script as `python path arguments...` would, in this process.  Called on each rank."""
    import runpy
    import sys

    sys.argv = [path, *arguments]
    sys.path[0:0] = [os.path.dirname(os.path.abspath(path))]
    runpy.run_path(path, run_name="__main__")


def _run(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], np: int, gpus: int | None, **options: Any
) -> list[Any]:
    """hvd.run for negative np, else hvd.spark.run, after a check that the wanted GPUs exist."""
    __tracebackhide__ = True  # IPython leaves this frame out
    if np < 0:
        from hvd._job.run import run as run_here

        _check_gpus_here(-np, gpus)
        return run_here(function, args=args, kwargs=kwargs, num_proc=-np, **options)
    from hvd.spark import _session
    from hvd.spark._run import run

    amount = _session.spark_context(options.get("spark")).getConf().get(GPU_AMOUNT)
    if gpus == 1 and not amount:
        raise ValueError(f"gpus=1, and {GPU_AMOUNT} is not set: Spark gives its tasks no GPU.  Set it to 1, or write gpus=0")
    return run(function, args, kwargs, np, **options)


def _check_np(np: Any) -> None:
    if callable(np):
        raise TypeError("write @distributed() with parentheses")
    if not isinstance(np, int) or isinstance(np, bool):
        raise TypeError(f"the number of ranks is {np!r}: it must be a whole number")


def _check_gpus_here(ranks: int, gpus: int | None) -> None:
    """Errors: ValueError if this host has fewer GPUs than ranks that need one."""
    import glob

    there = len(glob.glob("/proc/driver/nvidia/gpus/*"))
    if gpus == 1 and there < ranks:
        raise ValueError(f"{ranks} ranks need a GPU each, and the driver's host has {there}: use fewer ranks, or no GPU")
