"""Horovod's name: horovod.spark.common.backend."""

from __future__ import annotations

from hvd.spark.backend import Backend, LocalBackend, SparkBackend

__all__ = ["Backend", "LocalBackend", "SparkBackend"]
