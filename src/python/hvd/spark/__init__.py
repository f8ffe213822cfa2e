"""hvd.spark: jobs whose ranks are the tasks of a Spark barrier stage.

run() starts one from the driver; write_manifest() writes the cluster down for `hvdrun --manifest`.  Nothing here
imports pyspark before it is needed.
"""

from __future__ import annotations

from hvd.spark._log import log_to_driver
from hvd.spark._manifest import write_manifest
from hvd.spark._run import JobCancelled, run
from hvd.spark.store import Store

__all__ = ["JobCancelled", "Store", "log_to_driver", "run", "write_manifest"]
