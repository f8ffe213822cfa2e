"""The interface that fixed and elastic jobs share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable

from hvd.ray._rank import Start

__all__ = ["Adapter", "BaseParams"]

Callback = Callable[[Any], Any]


@dataclass
class BaseParams:
    """The resources of each rank.  Errors: ValueError for GPUs without use_gpu, and for less than one GPU."""

    cpus_per_worker: int = 1
    use_gpu: bool = False
    gpus_per_worker: int | None = None

    def __post_init__(self) -> None:
        check_gpus(self.use_gpu, self.gpus_per_worker, "gpus_per_worker")
        self.gpus_per_worker = self.gpus_per_worker or int(self.use_gpu)


def check_gpus(use_gpu: bool, gpus: int | None, name: str) -> None:
    """Errors: ValueError as for BaseParams."""
    if gpus and not use_gpu:
        raise ValueError(f"{name} is set, but use_gpu is False. use_gpu must be True if {name} is set.")
    if use_gpu and gpus is not None and gpus < 1:
        raise ValueError(f"{name} must be >= 1: Got {gpus}.")


class Adapter(ABC):
    """A job in Ray.  Functions run on hvdrun's ranks; Ray actors or tasks hold the ranks' slots."""

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: dict[str, Any] | None = None,
        extra_env_vars: dict[str, str] | None = None,
    ) -> None:
        """Takes the slots and starts the ranks.  Each rank makes an executable_cls(*args, **kwargs) for execute().

        extra_env_vars: for the ranks.  Errors: TimeoutError without room in the cluster; JobError with hvdrun's verdict.
        """
        start = None if executable_cls is None else (executable_cls, executable_args or (), executable_kwargs or {})
        self._start(start, {name: str(value) for name, value in (extra_env_vars or {}).items()})

    @abstractmethod
    def _start(self, executable: Start | None, variables: dict[str, str]) -> None:
        """start() with an object for each rank, if any, and variables for the ranks."""

    @abstractmethod
    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callback] | None = None) -> list[Any]:
        """Calls fn(executable) on every rank; returns the results by rank.

        callbacks: each is called at the driver, with every value of ray_logger.log().
        Errors: JobError with the traceback of the rank that failed first; the job has then ended.
        """

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        callbacks: list[Callback] | None = None,
    ) -> list[Any]:
        """Calls fn(*args, **kwargs) on every rank; otherwise like execute()."""
        return self.execute(_without_executable(fn, args, kwargs), callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        callbacks: list[Callback] | None = None,
    ) -> list[Any]:
        """Starts fn(*args, **kwargs) on every rank.  Returns an object reference for each rank's result."""
        if callbacks:
            raise ValueError("run_remote() returns at once and has no callbacks: call run()")
        return self._execute_remote(_without_executable(fn, args, kwargs))

    @abstractmethod
    def _execute_remote(self, fn: Callable[[Any], Any]) -> list[Any]:
        """Starts fn(executable) on every rank.  Returns an object reference for each rank's result."""

    @abstractmethod
    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls fn(executable) on rank 0 alone; returns its result."""

    @abstractmethod
    def shutdown(self) -> None:
        """Ends the ranks, and gives the slots back."""


def _without_executable(
    fn: Callable[..., Any], args: Sequence[Any] | None, kwargs: dict[str, Any] | None
) -> Callable[[Any], Any]:
    """A function of the executable that calls fn with these arguments alone."""
    return partial(_call, fn, tuple(args or ()), dict(kwargs or {}))


def _call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], _executable: Any) -> Any:
    return fn(*args, **kwargs)
