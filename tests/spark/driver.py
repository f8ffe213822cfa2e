"""A Spark driver that runs checks one after the other: driver.py MASTER [KEY=VALUE …], with a JSON line per check on stdin.

A line {"check": NAME, "args": {…}} calls checks.NAME(spark, **args); the answer, one line on the true stdout: {"value"},
or {"error", "kind"}, and {"out", "err", "seconds"}.  Spark's own log goes to the file that DRIVER_LOG names.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import traceback

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


class Copy(io.StringIO):
    """Stores written text, and copies it to the log."""

    def write(self, text: str) -> int:
        sys.__stderr__.write(text)  # type: ignore[union-attr]
        return super().write(text)


def answer(spark: object, line: str) -> dict[str, object]:
    """Runs one check to its end."""
    import checks

    asked, out, err, began = json.loads(line), Copy(), Copy(), time.monotonic()
    reply: dict[str, object]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            reply = {"value": getattr(checks, asked["check"])(spark, **asked.get("args", {}))}
        except BaseException as error:
            traceback.print_exc(file=sys.__stderr__)
            reply = {"error": str(error), "kind": type(error).__name__}
    return {**reply, "out": out.getvalue(), "err": err.getvalue(), "seconds": time.monotonic() - began}


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
    print(json.dumps({"value": "up"}), file=ANSWERS, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(spark, line)), file=ANSWERS, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
