"""Horovod's name: import horovod.ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvd.ray import BaseHorovodWorker, ElasticRayExecutor, RayExecutor

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]


def __getattr__(name: str) -> Any:
    from hvd import ray

    return getattr(ray, name)
