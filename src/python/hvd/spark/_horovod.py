"""horovod.spark's own functions, with Horovod's arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Callable

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
    """hvd.spark.run with Horovod's argument names.  stdout, stderr: text files for the ranks' output instead of ours.

    start_timeout: HOROVOD_SPARK_START_TIMEOUT's seconds by default, where it is set.
    use_mpi and use_gloo change nothing: MPI is the one controller here.  options: hvd.spark.run's own, by its names.
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
    with contextlib.ExitStack() as stack:
        if stdout is not None:
            stack.enter_context(contextlib.redirect_stdout(stdout))
        if stderr is not None:
            stack.enter_context(contextlib.redirect_stderr(stderr))
        return _run(fn, args, kwargs, num_proc, **given)


def run_elastic(*_args: Any, **_kwargs: Any) -> list[Any]:
    """Comes with elastic jobs."""
    raise NotImplementedError("horovod.spark.run_elastic is not there yet: use horovod.spark.run")
