"""Sends whole models, optimizers and Python objects between ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import torch

from hvd._runtime import world as _world
from hvd._runtime.objects import allgather_object, broadcast_object
from hvd.torch.ops import collectives

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


def is_sharded(optimizer: Any) -> bool:
    """Returns whether the optimizer is an hvd.ShardedOptimizer.  The module of that class is loaded on first use, so this
    function does not import it."""
    module = sys.modules.get("hvd.torch.sharded")
    return module is not None and isinstance(optimizer, module.ShardedOptimizer)


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Overwrites every rank's parameters with root_rank's.

    params: model.state_dict(), model.named_parameters(), model.parameters(), or a list of either kind.
    Errors: ValueError for anything else; HorovodInternalError if the ranks' shapes or dtypes differ.
    """
    if isinstance(params, torch.nn.Module):
        raise ValueError("parameters must be a state_dict or a list, not a model: give model.state_dict()")
    if isinstance(params, Mapping):
        pairs: list[Any] = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, (torch.Tensor, str)):
        pairs = [item if isinstance(item, tuple) else (None, item) for item in params]
    else:
        raise ValueError(f"parameters must be a state_dict or a list, not a {type(params).__name__}")
    for name, tensor in pairs:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"parameter {name!r} is a {type(tensor).__name__}, not a tensor (see broadcast_object)")
    names = [None if name is None else str(name) for name, _ in pairs]
    _world.need()
    collectives.synchronize(collectives.broadcast_many_async_([tensor.detach() for _, tensor in pairs], root_rank, names))


class _Place(NamedTuple):
    """A placeholder for a tensor in a state that travels without its tensors."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    on_host: bool


def _without_tensors(value: Any, found: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        found.append(value)
        return _Place(len(found) - 1, tuple(value.shape), value.dtype, value.device.type == "cpu")
    if isinstance(value, dict):
        return {key: _without_tensors(item, found) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_tensors(item, found) for item in value)
    return value


def _with_tensors(value: Any, old: Any, device: torch.device, places: dict[int, torch.Tensor]) -> Any:
    """The inverse of _without_tensors(), on another rank.  An old tensor that fits is kept: its users see the new values."""
    if isinstance(value, _Place):
        if isinstance(old, torch.Tensor) and tuple(old.shape) == value.shape and old.dtype == value.dtype:
            tensor = old
        else:
            tensor = torch.empty(value.shape, dtype=value.dtype, device="cpu" if value.on_host else device)
        places[value.number] = tensor
        return tensor
    if isinstance(value, dict):
        have = old if isinstance(old, dict) else {}
        return {key: _with_tensors(item, have.get(key), device, places) for key, item in value.items()}
    if type(value) in (list, tuple):
        had = old if type(old) is type(value) and len(old) == len(value) else [None] * len(value)
        return type(value)(_with_tensors(item, before, device, places) for item, before in zip(value, had))
    return value


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None) -> None:
    """Overwrites every rank's optimizer state and options with root_rank's.  A rank's state may still be empty.

    model is accepted as in Horovod and not needed.
    Errors: ValueError when the parameter groups differ between the ranks, and when the parts of a ShardedOptimizer's state do.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"a torch.optim.Optimizer is needed, not a {type(optimizer).__name__}")
    _world.need()
    if is_sharded(optimizer):
        cast(Any, optimizer).broadcast_options(root_rank)
        return
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in params:
        if not optimizer.state and parameter.requires_grad and parameter.grad is None:
            zeros: Any = torch.zeros_like(parameter)  # Horovod leaves such a gradient, since it makes the state by a first step
            zeros._hvd_untouched = zeros._version  # but a step must not use it as a gradient
            parameter.grad = zeros
            optimizer._hvd_left_zeros = True  # type: ignore[attr-defined]
    counts = [len(group["params"]) for group in optimizer.param_groups]
    tensors: list[torch.Tensor] = []
    message = None
    if _world.rank() == root_rank:
        positions = {id(p): index for index, p in enumerate(params)}
        state = {positions.get(id(key), key): value for key, value in optimizer.state.items()}
        options = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        message = (counts, _without_tensors(state, tensors), _without_tensors(options, tensors))
    root_counts, state, options = broadcast_object(message, root_rank)
    if any(other != root_counts for other in allgather_object(counts)):
        raise ValueError(
            f"the optimizer has parameter groups of {counts} parameters here, and of {root_counts} on rank {root_rank}"
        )
    if _world.rank() != root_rank:
        tensors = _adopt_state(optimizer, params, state, options)
    broadcast_parameters(tensors, root_rank)


def _adopt_state(optimizer: Any, params: list[Any], state: Any, options: Any) -> list[torch.Tensor]:
    """Gives the optimizer root's state; returns its tensors, which must still be filled, in root's order."""
    places: dict[int, torch.Tensor] = {}
    device = params[0].device if params else torch.device("cpu")
    mine = {}
    for key, value in state.items():
        owner = params[key] if isinstance(key, int) else key
        mine[owner] = _with_tensors(value, optimizer.state.get(owner), getattr(owner, "device", device), places)
    optimizer.state.clear()
    optimizer.state.update(mine)
    for group, new in zip(optimizer.param_groups, options):
        filled = {key: _with_tensors(value, group.get(key), device, places) for key, value in new.items()}
        for key in set(group) - set(filled) - {"params"}:
            del group[key]
        group.update(filled)
    return [places[index] for index in sorted(places)]
