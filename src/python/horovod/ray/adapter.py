"""Horovod's name: horovod.ray.adapter."""

from __future__ import annotations

from hvd.ray._adapter import Adapter, BaseParams

__all__ = ["Adapter", "BaseParams"]
