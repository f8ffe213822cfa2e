"""Databricks' name: from sparkdl.horovod.tensorflow.keras import LogCallback."""

from __future__ import annotations

from hvd.spark._log_callback import LogCallback

__all__ = ["LogCallback"]
