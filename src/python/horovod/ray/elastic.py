"""Horovod's name: horovod.ray.elastic.  Discoveries with the argument names of this module."""

from __future__ import annotations

from ray.exceptions import GetTimeoutError

from hvd.ray._discovery import ChangingDiscovery
from hvd.ray._discovery import RayHostDiscovery as _RayHostDiscovery
from hvd.ray._elastic_executor import ElasticRayExecutor

__all__ = ["ElasticRayExecutor", "GetTimeoutError", "RayHostDiscovery", "TestDiscovery"]


class RayHostDiscovery(_RayHostDiscovery):
    """See hvd.ray._discovery."""

    def __init__(self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int | None = 1) -> None:
        super().__init__(use_gpu, cpus_per_slot, gpus_per_slot)


class TestDiscovery(ChangingDiscovery):
    """See hvd.ray._discovery."""

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = 1,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        super().__init__(min_hosts, max_hosts, change_frequency_s, use_gpu, cpus_per_slot, gpus_per_slot, verbose, _graceful)
