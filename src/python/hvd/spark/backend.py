"""Backend: the place where an estimator's ranks run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

__all__ = ["Backend", "LocalBackend", "SparkBackend", "default_num_proc"]


def default_num_proc() -> int:
    """The number of slots in the session now."""
    from hvd.spark._session import slots, spark_context

    return slots(spark_context())


class Backend:
    """Runs a function on num_processes() ranks."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list[Any]:
        """All ranks' results, in rank order."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """The number of ranks."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Tasks of a barrier stage; num_proc=None takes every slot.  options: those of horovod.spark.run and hvd.spark.run."""

    def __init__(self, num_proc: int | None = None, env: dict[str, str] | None = None, **options: Any) -> None:
        self.num_proc, self.env, self.options = num_proc, env or {}, options

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list[Any]:
        from hvd.spark._horovod import run

        return run(fn, args, kwargs, self.num_processes(), env={**self.env, **(env or {})}, **self.options)

    def num_processes(self) -> int:
        return self.num_proc or default_num_proc()


class LocalBackend(Backend):
    """Ranks on the driver, for trials."""

    def __init__(self, num_proc: int = 1) -> None:
        self.num_proc = num_proc

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list[Any]:
        from hvd._job.run import run

        return run(_with_environment, args=(env or {}, fn, tuple(args), dict(kwargs or {})), num_proc=self.num_proc)

    def num_processes(self) -> int:
        return self.num_proc


def _with_environment(env: dict[str, str], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from hvd._runtime import environment as _environment

    _environment.whole.update(env)
    return fn(*args, **kwargs)
