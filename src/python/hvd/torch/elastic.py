"""The names of elastic training, so that scripts that also run without it can be imported.

This version cannot change a running job's ranks: using them is an UnsupportedError.
"""

from __future__ import annotations

from typing import Any, Callable

from hvd.exceptions import UnsupportedError

__all__ = ["ElasticSampler", "TorchState", "run"]


def _refuse(name: str) -> None:
    raise UnsupportedError(
        f"hvd.elastic.{name}: elastic training is not in this version; start a fixed number of ranks and call the training "
        "function without it"
    )


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function that takes a state."""

    def refused(*_: Any, **__: Any) -> None:
        _refuse("run")

    return refused


class TorchState:
    """Model, optimizer and values to come back to."""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse("TorchState")


class ElasticSampler:
    """Divides what is left of an epoch among the ranks."""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse("ElasticSampler")
