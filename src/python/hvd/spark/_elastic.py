"""hvd.spark.run_elastic: a job that survives lost executors and uses new ones.  The driver's side."""

from __future__ import annotations

import platform
import shutil
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from hvd._job.agents import private_folder
from hvd._job.host_daemon import clean_environment, travelling_environment
from hvd._job.payload import pickled_call
from hvd._job.results import Ranked, elastic_results, results_file, true_code
from hvd._job.run import command_words, ranks_environment
from hvd.spark import _session
from hvd.spark._slots import Slots
from hvd.spark._task import Spec, _check_cloudpickle

# hvdrun's limit for the start of a slot: a task that waits for another executor, its Python, the daemon.
_SLOT_SECONDS = 120.0


def run_elastic(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    *,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: dict[str, str] | None = None,
    verbose: bool | int = False,
    network_interfaces: str | Sequence[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
    spark: Any = None,
) -> list[Any]:
    """Calls func(*args, **kwargs), which trains by hvd.elastic.run, on ranks in Spark tasks; returns all ranks' results.

    The job begins with all available slots, from num_proc (every slot by default) to max_num_proc (num_proc by default).  The
    job goes on with min_num_proc ranks or more (by default num_proc).  Ranks that are lost with an executor are started again
    as soon as Spark has another executor.  elastic_timeout: seconds that too few ranks wait for more; reset_limit: limit for
    changes of the ranks.  The others: as for run().  Results are those of the ranks at the end, in their order.

    Each rank is a task of its own, so ranks on one executor's host use TCP between them.
    Errors: as run()'s; RuntimeError also if too few ranks are left for too long.
    """
    __tracebackhide__ = True  # IPython leaves this frame out
    if not callable(func):
        raise TypeError(f"hvd.spark.run_elastic needs something to call, not a {type(func).__name__}")
    numbers = {"num_proc": num_proc, "min_num_proc": min_num_proc, "max_num_proc": max_num_proc}
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} is {value!r}: it must be at least 1")
    start_timeout = _session.start_timeout(start_timeout)
    context = _session.spark_context(spark)
    _session.refuse_unfit(context)
    payload = pickled_call(Ranked(func), tuple(args), dict(kwargs or {}))
    np = _session.wait_for_slots(context, num_proc or 0, start_timeout, _say)
    spec = Spec(
        job=f"hvd-{uuid.uuid4().hex[:12]}",
        name=getattr(func, "__name__", type(func).__name__),
        payload=None,  # hvdrun reads the payload
        application=context.applicationId,
        cloudpickle=_own_cloudpickle(),
        gpus=context.getConf().get("spark.task.resource.gpu.amount") is not None,
        relay=None,
    )
    python, environment = _of_an_executor(context, spec)
    most = max_num_proc or np
    options = {
        "num_proc": np,
        "min_num_proc": min_num_proc or np,
        "max_num_proc": most,
        "start_timeout": max(_SLOT_SECONDS, start_timeout or 0),
        "reset_limit": reset_limit,
        "verbose": verbose,
        "network_interfaces": network_interfaces,
        "prefix_output_with_timestamp": prefix_output_with_timestamp,
        "executable": executable or python,
    }
    environment |= {**travelling_environment(), **(env or {})}
    if elastic_timeout is not None:
        environment["HOROVOD_ELASTIC_TIMEOUT"] = str(elastic_timeout)
    folder = private_folder()
    try:
        with results_file(getattr(context, "_temp_dir", None)) as brought:
            slots = Slots(context, folder, most, spec, _SLOT_SECONDS - 10)
            try:
                code, errors = slots.run_hvdrun(payload, spec.name, command_words(options), environment, brought)
            finally:
                slots.close()
            return elastic_results(brought, true_code(brought, code), errors)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _own_cloudpickle() -> str:
    import cloudpickle

    return str(cloudpickle.__version__)


def _of_an_executor(context: Any, spec: Spec) -> tuple[str, dict[str, str]]:
    """An executor's Python, and the ranks' environment.  RuntimeError if they do not fit the driver's."""

    def about(_rows: Any) -> Iterator[tuple[str, str, dict[str, str]]]:
        _check_cloudpickle(spec)
        path = ranks_environment()["PYTHONPATH"]
        yield sys.executable, platform.python_version(), {**clean_environment(), "PYTHONPATH": path}

    try:
        python, version, environment = context.parallelize([0], 1).mapPartitions(about).collect()[0]
    except Exception as error:
        from hvd.spark._errors import explained

        raise explained(error, 1) from None
    if version.split(".")[:2] != platform.python_version().split(".")[:2]:
        raise RuntimeError(
            f"driver and executors run different Pythons (set PYSPARK_PYTHON): {platform.python_version()}, {version}"
        )
    return python, environment


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(f"hvd.spark: {text}", file=sys.stderr, flush=True)
