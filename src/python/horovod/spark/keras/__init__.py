"""Horovod's name: horovod.spark.keras."""

from __future__ import annotations

from hvd.spark.keras import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
