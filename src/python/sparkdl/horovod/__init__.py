"""Databricks' name: from sparkdl.horovod import log_to_driver."""

from __future__ import annotations

from hvd.spark._log import log_to_driver

__all__ = ["log_to_driver"]
