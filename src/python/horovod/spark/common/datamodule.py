"""Horovod's name: horovod.spark.common.datamodule."""

from __future__ import annotations

from hvd.spark.ml.datamodule import DataModule

__all__ = ["DataModule"]
