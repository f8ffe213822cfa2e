"""Horovod's name: horovod.spark.common.util."""

from __future__ import annotations

from hvd.spark.ml.prepared import prepare_data

__all__ = ["prepare_data"]
