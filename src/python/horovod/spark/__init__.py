"""Horovod's name: import horovod.spark."""

from __future__ import annotations

from hvd.spark._horovod import run, run_elastic

__all__ = ["run", "run_elastic"]
