"""Horovod's name: horovod.ray.worker."""

from __future__ import annotations

from hvd.ray._worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker"]
