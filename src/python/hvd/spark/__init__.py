"""hvd.spark: jobs whose ranks run in Spark's tasks.

run() starts one from the driver, in a barrier stage; @distributed and TorchDistributor are other ways to call it.
run_elastic() starts one that outlives executors; write_manifest() writes the cluster down for `hvdrun --manifest`.
Nothing here imports pyspark before it is needed.
"""

from __future__ import annotations

from hvd.spark._distributed import TorchDistributor, distributed
from hvd.spark._elastic import run_elastic
from hvd.spark._log import log_to_driver
from hvd.spark._manifest import write_manifest
from hvd.spark._run import JobCancelled, run
from hvd.spark.store import Store

__all__ = ["JobCancelled", "Store", "TorchDistributor", "distributed", "log_to_driver", "run", "run_elastic", "write_manifest"]
