"""Horovod's name: horovod.ray.elastic_v2."""

from __future__ import annotations

from ray.exceptions import GetTimeoutError

from hvd.ray._discovery import ChangingDiscovery as TestDiscovery
from hvd.ray._discovery import RayHostDiscovery
from hvd.ray._elastic import ElasticAdapter, ElasticParams

__all__ = ["ElasticAdapter", "ElasticParams", "GetTimeoutError", "RayHostDiscovery", "TestDiscovery"]
