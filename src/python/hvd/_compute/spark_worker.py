"""A compute job on Spark: spark-submit --py-files … or python -m horovod.spark.tensorflow.compute_worker FILE.

Spark's executors run the workers, spark.default.parallelism of them.  hvd/tensorflow/compute_worker.py tells the rest.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from hvd._compute.interface_addresses import LOOPBACK
from hvd._compute.job import parse, start_service, workers_of_each

__all__ = ["run"]


def run() -> None:
    """The command line.  SIGTERM ends the job."""
    from pyspark.sql import SparkSession

    from hvd.spark import run as run_on_spark
    from hvd.tensorflow.data_service import compute_worker_fn

    given = parse("python -m horovod.spark.tensorflow.compute_worker", None)
    context = SparkSession.builder.getOrCreate().sparkContext
    try:
        workers = context.defaultParallelism
        workers_of_each(workers, given.dispatchers)
        nics = [LOOPBACK] if (context.master or "").startswith("local") else None
        service, config = start_service(workers, given.dispatchers, given.dispatcher_side, given.timeout, nics)
        signal.signal(signal.SIGTERM, _end)
        try:
            config.write(given.configfile)
            run_on_spark(compute_worker_fn, (config,), num_proc=workers)
        finally:
            service.shutdown()
    finally:
        context.stop()


def _end(number: int, frame: FrameType | None) -> None:
    """Leaves through run(), which cancels Spark's tasks."""
    sys.exit(128 + number)
