"""hvd.ray: jobs whose ranks run on the nodes of a Ray cluster.

RayExecutor starts ranks and runs functions on them.  With min_workers the job is elastic.  ray_logger.log() sends a rank's
values to the driver.  This package imports Ray only when a name of it is used, so ranks start seconds earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvd.ray._elastic_executor import ElasticRayExecutor
    from hvd.ray._executor import RayExecutor
    from hvd.ray._worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]

_PLACES = {"BaseHorovodWorker": "_worker", "ElasticRayExecutor": "_elastic_executor", "RayExecutor": "_executor"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"hvd.ray.{_PLACES[name]}"), name)
