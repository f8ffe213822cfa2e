"""Tells torch.distributed of its backend "hvd".  Light: the backend is loaded when a group is made."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

__all__ = ["register"]


def _create(options: Any, backend_options: Any = None) -> Any:
    from hvd.torch.process_group import create

    return create(options, backend_options)


def register() -> None:
    """Called by torch through its entry point torch.distributed.backends, and by ``import hvd.torch``."""
    if not dist.is_available() or hasattr(dist.Backend, "HVD"):
        return
    try:
        dist.Backend.register_backend("hvd", _create, extended_api=True, devices=["cpu", "cuda"])
    except TypeError:  # torch 2.0
        dist.Backend.register_backend("hvd", _create, extended_api=True)
