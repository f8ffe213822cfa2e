"""Horovod's name: horovod.spark.common.backend."""

from __future__ import annotations

from hvd.spark.backend import Backend, LocalBackend, SparkBackend, default_num_proc

__all__ = ["Backend", "LocalBackend", "SparkBackend", "default_num_proc"]
