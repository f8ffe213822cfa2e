"""Databricks' name: from sparkdl.horovod.runner_base import HorovodRunner."""

from __future__ import annotations

from hvd.spark._runner import HorovodRunner

__all__ = ["HorovodRunner"]
