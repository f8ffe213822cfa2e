"""Registers the backend "hvd" with torch.distributed.  The backend itself is loaded only when a group is made, so importing
this module is cheap."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch.distributed as dist

__all__ = ["register"]

_SECONDS = timedelta(minutes=30)  # torch's own time-out


def _create(options: Any, backend_options: Any = None) -> Any:
    from hvd.torch.process_group import create

    return create(options, backend_options)


def _meet(url: str, timeout: timedelta = _SECONDS, **_: Any) -> Iterator[Any]:
    """torch's rendezvous of init_method="hvd://": ranks and a store of the world that hvd.init() has joined."""
    from hvd.torch.process_group import rendezvous

    yield rendezvous(timeout)
    raise RuntimeError("hvd://: this rendezvous is for one world; call init_process_group again for another one")


def register() -> None:
    """Called by torch through its entry point torch.distributed.backends, and by ``import hvd.torch``."""
    if not dist.is_available() or hasattr(dist.Backend, "HVD"):
        return
    module: Any = import_module("torch.distributed.rendezvous")
    module.register_rendezvous_handler("hvd", _meet)
    try:
        dist.Backend.register_backend("hvd", _create, extended_api=True, devices=["cpu", "cuda"])
    except TypeError:  # torch 2.0
        dist.Backend.register_backend("hvd", _create, extended_api=True)
