"""State handlers: TorchState uses them to copy, restore and broadcast values that are more than plain objects.

A value without a handler here that has state_dict() and load_state_dict(), such as a GradScaler, gets ObjectStateHandler.
A user's own handler class must be in the registry before the TorchState is made:
set_handler_registry([(Schedule, ScheduleHandler), *get_handler_registry()]).  The first type that fits a value counts.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from hvd.elastic import broadcast_from_rank_0
from hvd.torch._elastic.elastic_sampler import ElasticSampler
from hvd.torch.functions import broadcast_optimizer_state, broadcast_parameters, is_sharded

__all__ = [
    "LRSchedulerStateHandler",
    "ModelStateHandler",
    "ObjectStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateDictHandler",
    "StateHandler",
    "get_handler_registry",
    "handler_for",
    "set_handler_registry",
]


class StateHandler:
    """The base of all handlers.  value: the object that the user gave to TorchState.

    One thread: that of the training loop.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps a copy of the value's state in this process."""
        raise NotImplementedError

    def restore(self) -> None:
        """Puts the state of the last save() back into the value."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives the value the state that it has on rank 0.  A collective call.  The copy stays as it is."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Takes another value, and saves its state."""
        self.value = value
        self.save()


class StateDictHandler(StateHandler):
    """A handler for values with state_dict() and load_state_dict().

    TorchState copies all values before it replaces the first copy.  So after a failure all kept copies are equally old.
    """

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def copied(self) -> Any:
        """A copy of the value's state as it is now."""
        return copy.deepcopy(self.value.state_dict())

    def save(self) -> None:
        self.saved = self.copied()

    def restore(self) -> None:
        # The value may keep what it loads, and change it later.
        self.value.load_state_dict(copy.deepcopy(self.saved))


class ModelStateHandler(StateDictHandler):
    """For torch.nn.Module, with what get_extra_state() returns."""

    def restore(self) -> None:
        given = copy.copy(self.saved)  # the module copies tensors itself
        given.update(copy.deepcopy(_objects_in(given)))
        self.value.load_state_dict(given)

    def sync(self) -> None:
        state = self.value.state_dict()
        objects = _objects_in(state)
        broadcast_parameters({key: value for key, value in state.items() if key not in objects}, root_rank=0)
        if objects:
            state.update(broadcast_from_rank_0(objects))
            self.value.load_state_dict(state)


def _objects_in(state: dict[str, Any]) -> dict[str, Any]:
    """A module's extra state.  Its tensors, if any, may be copies, and may have other shapes on other ranks."""
    return {
        key: value
        for key, value in state.items()
        if key.rpartition(".")[2] == "_extra_state" or not isinstance(value, torch.Tensor)
    }


class ObjectStateHandler(StateDictHandler):
    """For any object with a state_dict that can be pickled.  The object itself stays, with its references to others."""

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_from_rank_0(self.value.state_dict()))


class OptimizerStateHandler(ObjectStateHandler):
    """For torch.optim.Optimizer.  ValueError for a ShardedOptimizer: the state of a rank that ends is lost with it."""

    def copied(self) -> Any:
        if is_sharded(self.value):
            raise ValueError(
                "an elastic state cannot keep a ShardedOptimizer, whose parts belong to a fixed number of ranks: use "
                "hvd.DistributedOptimizer, or load checkpoints of its state_dict()"
            )
        return super().copied()

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


class LRSchedulerStateHandler(ObjectStateHandler):
    """For the schedules of torch.optim.lr_scheduler: they change their optimizer's learning rates."""


class SamplerStateHandler(ObjectStateHandler):
    """For ElasticSampler."""


_schedules = torch.optim.lr_scheduler
_registry: list[tuple[type, type[StateHandler]]] = [
    (ElasticSampler, SamplerStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (torch.nn.Module, ModelStateHandler),
    (getattr(_schedules, "LRScheduler", _schedules._LRScheduler), LRSchedulerStateHandler),
    (_schedules.ReduceLROnPlateau, LRSchedulerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """The registry itself: pairs of a type and the handler class for its instances, looked through in order."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Replaces the registry for all TorchStates that are made later."""
    global _registry
    _registry = registry


def handler_for(value: Any) -> StateHandler | None:
    """A new handler of the value; None for a plain value, which is pickled."""
    made = next((handler for kind, handler in _registry if isinstance(value, kind)), None)
    methods = (getattr(value, name, None) for name in ("state_dict", "load_state_dict"))
    if made is None and not isinstance(value, type) and all(map(callable, methods)):
        made = ObjectStateHandler
    return made(value) if made else None
