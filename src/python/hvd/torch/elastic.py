"""Elastic states of PyTorch: models, optimizers and samplers.  For the kinds of recovery see hvd.elastic."""

from __future__ import annotations

from typing import Any

from hvd._runtime import world as _world
from hvd.elastic import ObjectState, _need_names, broadcast_from_rank_0, check_results, run
from hvd.torch._elastic.elastic_sampler import ElasticSampler
from hvd.torch._elastic.global_batch import GlobalBatch, GlobalBatchLoader
from hvd.torch._elastic.state_handlers import (
    StateDictHandler,
    StateHandler,
    get_handler_registry,
    handler_for,
    set_handler_registry,
)

__all__ = [
    "ElasticSampler",
    "GlobalBatch",
    "GlobalBatchLoader",
    "StateDictHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "set_handler_registry",
]


class TorchState(ObjectState):
    """Models, optimizers, samplers and plain values, as attributes: TorchState(model, optimizer, sampler=..., epoch=0).

    An object with state_dict() and load_state_dict(), under any name, is stored by its state_dict.  Restoring loads the stored
    state into the same object. Examples: a model, an optimizer, a learning rate schedule, an ElasticSampler, a GradScaler.
    Everything else is pickled. horovod.torch.elastic.state has the handlers, and a registry for handlers of other types.
    """

    _handlers: dict[str, StateHandler]

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        object.__setattr__(self, "_handlers", {})
        everything = {"model": model, "optimizer": optimizer, **kwargs}
        plain = {}
        for name, value in everything.items():
            handler = handler_for(value)
            if handler is None:
                plain[name] = value
            else:
                self._handlers[name] = handler
                object.__setattr__(self, name, value)
        super().__init__(broadcast_from_rank_0, _world.rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].set_value(value)  # restore() goes back to the new model's state
        super().__setattr__(name, value)

    def save(self) -> None:
        """See State.  If there is not enough memory for all copies, those of the last save() stay."""
        copies = self._copies()
        super().save()
        self._keep(copies)

    def restore(self) -> None:
        """See State."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def saved_copy(self) -> dict[str, Any]:
        """See State.  NotImplementedError if a handler is no StateDictHandler: its copy is not accessible."""
        others = [name for name, handler in self._handlers.items() if not isinstance(handler, StateDictHandler)]
        if others:
            kind = type(self._handlers[others[0]]).__name__
            raise NotImplementedError(
                f"{others[0]}: --state-dir and a new rank 0 need a copy; "
                f"derive {kind} from StateDictHandler of hvd.torch.elastic"
            )
        return {**super().saved_copy(), "kept": {name: handler.saved for name, handler in self._with_copies().items()}}

    def use_saved_copy(self, copy: Any) -> None:
        """See State."""
        _need_names("objects with a state_dict", self._with_copies(), copy["kept"])
        super().use_saved_copy(copy)
        for name, handler in self._with_copies().items():
            handler.saved = copy["kept"][name]

    def sync(self) -> None:
        """See State."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()
        copies = self._copies()
        check_results()  # a failure up to here leaves the copies unchanged
        self._keep(copies)

    def reset(self) -> None:
        """Samplers divide the remaining samples among the ranks of the new world."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()

    def _with_copies(self) -> dict[str, StateDictHandler]:
        return {name: handler for name, handler in self._handlers.items() if isinstance(handler, StateDictHandler)}

    def _copies(self) -> dict[str, Any]:
        return {name: handler.copied() for name, handler in self._with_copies().items()}

    def _keep(self, copies: dict[str, Any]) -> None:
        for name, handler in self._handlers.items():
            if isinstance(handler, StateDictHandler):
                handler.saved = copies[name]
            else:
                handler.save()
