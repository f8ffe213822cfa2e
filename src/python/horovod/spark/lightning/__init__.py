"""Horovod's name: horovod.spark.lightning."""

from __future__ import annotations

from hvd.spark.lightning import LightningEstimator, LightningModel

TorchEstimator = LightningEstimator
TorchModel = LightningModel

__all__ = ["LightningEstimator", "LightningModel", "TorchEstimator", "TorchModel"]
