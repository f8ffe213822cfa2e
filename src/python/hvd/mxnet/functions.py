"""Sends whole models and Python objects between ranks."""

from __future__ import annotations

import types
from typing import Any

import mxnet as mx

from hvd._runtime import world as _world
from hvd._runtime.objects import allgather_object, broadcast_object
from hvd.mxnet.ops import collectives

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrites every rank's parameters with root_rank's.

    params: a dict of arrays (Module.get_params()), or gluon's ParameterDict or dict of Parameters (net.collect_params()).
    A Parameter of unknown shape is broadcast when its first forward pass initialises it.
    prefix: put before the names, if two models have parameters of one name.
    Errors: ValueError for anything else; HorovodInternalError if the ranks' shapes or dtypes differ.
    """
    _world.need()
    if not hasattr(params, "items"):
        raise ValueError(f"parameters must be a dict or a ParameterDict, not a {type(params).__name__}")
    names: list[str | None] = []
    arrays = []
    for key, value in sorted(params.items()):
        name = (prefix or "") + str(key)
        if isinstance(value, mx.nd.NDArray):
            found = [value]
        elif isinstance(value, mx.gluon.parameter.Parameter):
            try:
                found = value.list_data()
            except mx.gluon.parameter.DeferredInitializationError:
                _broadcast_when_initialised(value, root_rank, name)
                continue
        else:
            raise ValueError(f"parameter {key!r} is a {type(value).__name__}, not an array (see broadcast_object)")
        arrays += found
        names += [name if i == 0 else f"{name}.{i}" for i in range(len(found))]
    collectives.synchronize(collectives.broadcast_many_async_(arrays, root_rank, names))


def _broadcast_when_initialised(parameter: Any, root_rank: int, name: str) -> None:
    initialise = parameter._init_impl

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(*args, **kwargs)
        for i, array in enumerate(self.list_data()):
            collectives.broadcast_(array, root_rank, f"{name}.{i}")
        del self._init_impl  # restores the class's method

    parameter._init_impl = types.MethodType(wrapped, parameter)
