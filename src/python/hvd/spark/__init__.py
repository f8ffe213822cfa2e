"""hvd.spark: jobs whose ranks run in Spark's tasks.

run() starts a job from the driver, in a barrier stage; @distributed and TorchDistributor are other interfaces to it.
run_elastic() starts a job that survives lost executors.  write_manifest() writes the cluster's hosts for `hvdrun --manifest`.
pyspark is imported only when it is needed.
"""

from __future__ import annotations

from hvd.spark._distributed import TorchDistributor, distributed
from hvd.spark._elastic import run_elastic
from hvd.spark._log import log_to_driver
from hvd.spark._manifest import write_manifest
from hvd.spark._run import JobCancelled, run
from hvd.spark.store import Store

__all__ = ["JobCancelled", "Store", "TorchDistributor", "distributed", "log_to_driver", "run", "run_elastic", "write_manifest"]
