"""Values from the ranks to the driver's callbacks: ray_logger.log({"loss": 0.5}) on a rank, run(fn, callbacks=[show])."""

from __future__ import annotations

import warnings
from typing import Any

from hvd.ray import _link

__all__ = ["configure", "log", "warning_raised"]

_to: Any = None  # a connection to the slot's process, or a queue
warning_raised = False


def configure(queue: Any) -> None:
    """Sets the target of log(): a Ray queue; hvdrun's ranks have one already."""
    global _to
    _to = queue


def log(info_dict: dict[str, Any]) -> None:
    """Sends a dictionary from this rank to every callback at the driver.  Errors: TypeError if it cannot be pickled."""
    global warning_raised
    if isinstance(_to, _link.Connection):
        import cloudpickle

        _to.send(_link.LOG, cloudpickle.dumps(info_dict))
    elif _to is not None:
        _to.put(info_dict)
    elif not warning_raised:
        warnings.warn("ray_logger.log() was called outside a rank of a Ray job: the values are lost", stacklevel=2)
        warning_raised = True
