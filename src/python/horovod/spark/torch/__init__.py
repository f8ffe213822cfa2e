"""Horovod's name: horovod.spark.torch."""

from __future__ import annotations

from hvd.spark.torch import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
