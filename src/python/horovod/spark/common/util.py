"""Horovod's name: horovod.spark.common.util."""

from __future__ import annotations

from hvd.spark.ml.dataset import prepare_data

__all__ = ["prepare_data"]
