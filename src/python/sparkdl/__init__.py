"""Databricks' names: from sparkdl import HorovodRunner, HorovodEstimator."""

from __future__ import annotations

from hvd.spark._runner import HorovodRunner
from hvd.spark.ml.horovod_estimator import HorovodEstimator

__all__ = ["HorovodEstimator", "HorovodRunner"]
