"""horovod.spark's own functions, with Horovod's arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from hvd.spark._elastic import run_elastic as _run_elastic
from hvd.spark._run import run as _run


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: str | Sequence[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
    **options: Any,
) -> list[Any]:
    """hvd.spark.run with Horovod's argument names.  stdout, stderr: text files that get the ranks' output.

    start_timeout: by default HOROVOD_SPARK_START_TIMEOUT seconds, if it is set.
    use_mpi and use_gloo change nothing: ranks are started and coordinated in one way.
    options: hvd.spark.run's own, by its names.
    """
    del use_mpi, use_gloo
    given = {
        "start_timeout": start_timeout,
        "env": env,
        "verbose": verbose is True or verbose > 1,
        "network_interfaces": nics,
        "mpi_args": extra_mpi_args,
        "prefix_output_with_timestamp": prefix_output_with_timestamp,
        "executable": executable,
        **options,
    }
    with _redirected(stdout, stderr):
        return _run(fn, args, kwargs, num_proc, **given)


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: str | Sequence[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """hvd.spark.run_elastic with Horovod's argument names.  stdout, stderr: text files that get the ranks' output.

    min_np, max_np: older names of min_num_proc and max_num_proc.
    """
    given: dict[str, Any] = {
        "min_num_proc": min_num_proc if min_num_proc is not None else min_np,
        "max_num_proc": max_num_proc if max_num_proc is not None else max_np,
        "start_timeout": start_timeout,
        "elastic_timeout": elastic_timeout,
        "reset_limit": reset_limit,
        "env": env,
        "verbose": verbose is True or verbose > 1,
        "network_interfaces": nics,
        "prefix_output_with_timestamp": prefix_output_with_timestamp,
    }
    with _redirected(stdout, stderr):
        return _run_elastic(fn, args, kwargs, num_proc, **given)


@contextlib.contextmanager
def _redirected(stdout: Any, stderr: Any) -> Iterator[None]:
    """Redirects the ranks' output to the given files."""
    with contextlib.ExitStack() as stack:
        if stdout is not None:
            stack.enter_context(contextlib.redirect_stdout(stdout))
        if stderr is not None:
            stack.enter_context(contextlib.redirect_stderr(stderr))
        yield
