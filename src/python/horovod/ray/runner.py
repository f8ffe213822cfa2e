"""Horovod's name: horovod.ray.runner."""

from __future__ import annotations

from hvd.ray._executor import MiniSettings, RayExecutor
from hvd.ray._static import StaticAdapter, StaticParams
from hvd.ray._worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "MiniSettings", "RayExecutor", "StaticAdapter", "StaticParams"]
