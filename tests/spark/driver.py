"""A Spark driver that runs checks.py's checks (support/check_server.py): driver.py MASTER [KEY=VALUE …]."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support import check_server

sys.path[0] = os.path.dirname(os.path.abspath(__file__))  # ranks get this path: the suites' folders have other packages' names


def main() -> None:
    """See the file's comment."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(sys.argv[1]).appName("hvd-tests")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", "640m").config("spark.sql.shuffle.partitions", "4")
    for setting in sys.argv[2:]:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    import checks

    check_server.serve(checks, spark)
    spark.stop()


if __name__ == "__main__":
    main()
