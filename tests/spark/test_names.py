"""Horovod's and Databricks' names for Spark, and the stores' errors; no session."""

from __future__ import annotations

import subprocess

import pytest

from python.harness import environment

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(150)]


SPARKDL = """
import inspect
from sparkdl import HorovodEstimator, HorovodRunner
from sparkdl.horovod import log_to_driver
from sparkdl.horovod.runner_base import HorovodRunner as base
from sparkdl.horovod.tensorflow.keras import LogCallback

assert base is HorovodRunner and callable(HorovodEstimator)
for what, wanted in ((HorovodRunner, "(np, driver_log_verbosity='all')"), (log_to_driver, "(message)"),
                     (LogCallback, "(per_batch_log=False)")):
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(what).parameters.values()]
    assert str(inspect.Signature(parameters)) == wanted, (what, parameters)
print("well")
"""


def test_names_of_sparkdl() -> None:
    """Databricks' names with their parameters; tests/python/test_horovod_names.py has Horovod's."""
    done = subprocess.run(
        [str(s.python()), "-c", SPARKDL], env=environment(KERAS_BACKEND="torch"), timeout=110, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.endswith("well\n"), done.stderr


STORES = """
import os, tempfile
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store

for path in ("dbfs:/runs/x", "/dbfs/runs/x", "file:/dbfs/runs/x", "file:///dbfs/runs/x"):
    store = Store.create(path)
    assert type(store) is DBFSLocalStore and store.prefix_path == "/dbfs/runs/x", path
try:
    DBFSLocalStore("/data/runs")
except ValueError as error:
    assert "/data/runs is not a path of DBFS" in str(error)

with tempfile.TemporaryDirectory() as folder:
    store = Store.create("file://" + folder, save_runs=False)
    assert type(store) is LocalStore and isinstance(store, FilesystemStore) and not store.saving_runs()
    assert store.get_test_data_path(3) == folder + "/intermediate_test_data.3"
    assert not store.is_parquet_dataset(store.get_train_data_path())
    store.write_text(folder + "/note", "text")
    assert store.read(folder + "/note") == b"text"

assert HDFSStore("/user/x").prefix_path == "hdfs:///user/x"
os.environ["JAVA_HOME"] = os.environ["HADOOP_HOME"] = os.environ["ARROW_LIBHDFS_DIR"] = "/nowhere"
store = Store.create("hdfs://NameNode:8020/user/x", user="me")
assert type(store) is HDFSStore and store.get_runs_path() == "hdfs://NameNode:8020/user/x/runs"
try:
    store.exists(store.prefix_path)
    raise SystemExit("Hadoop is there?")
except OSError as error:
    assert "hdfs://NameNode:8020/user/x needs Hadoop's client" in str(error) and "CLASSPATH" in str(error), error
try:
    HDFSStore("s3://bucket/x")
    raise SystemExit("not refused")
except ValueError as error:
    assert "not an hdfs:// URL" in str(error)
"""


def test_stores_by_path() -> None:
    """DBFS in all its spellings; HDFS without Hadoop says what to install."""
    done = subprocess.run([str(s.python()), "-c", STORES], env=environment(), timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
