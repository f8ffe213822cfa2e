"""Horovod's name: horovod.ray.strategy."""

from __future__ import annotations

from hvd.ray._strategy import BaseStrategy, ColocatedStrategy, PGStrategy, create_placement_group

__all__ = ["BaseStrategy", "ColocatedStrategy", "PGStrategy", "create_placement_group"]
