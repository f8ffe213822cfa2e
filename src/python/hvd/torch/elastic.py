"""Elastic states of PyTorch: models, optimizers and samplers.  For the kinds of recovery see hvd.elastic."""

from __future__ import annotations

from typing import Any

from hvd import _world
from hvd.elastic import ObjectState, _need_names, broadcast_from_rank_0, check_results, run
from hvd.torch._elastic_sampler import ElasticSampler
from hvd.torch._global_batch import GlobalBatch, GlobalBatchLoader
from hvd.torch._state_handlers import (
    StateDictHandler,
    StateHandler,
    get_handler_registry,
    handler_for,
    set_handler_registry,
)

__all__ = ["ElasticSampler", "GlobalBatch", "GlobalBatchLoader", "TorchState", "run"]


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides an epoch among the ranks, and its rest again after a change of the world.

    Report each batch by record_batch(), call set_epoch() at the end of an epoch, and put it into the TorchState. All ranks
    take the same number of samples: at most size - 1 of them occur twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch from its first sample."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that a batch of this many samples is finished, on every rank."""
        self._refuse_shares("record_batch() counts the samples of ranks; a GlobalBatchLoader tells of them itself")
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        """The progress of the epoch."""
        shares = {"shares": _shares.kept()} if _shares.kept() else {}
        return {"epoch": self.epoch, "processed_num": self.processed_num, **shares}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continues from this progress, among the present ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        if "shares" in state_dict:
            _shares.keep(state_dict["shares"])
        self.reset()

    def reset(self) -> None:
        """Divides the remaining samples among the present ranks."""
        self.num_replicas, self.rank = _world.size(), _world.rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    @staticmethod
    def _refuse_shares(why: str) -> None:
        if _shares.kept():
            raise RuntimeError(f"keep_global_batch=True: {why} (hvd-elastic(7))")

    def __iter__(self) -> Iterator[int]:
        self._refuse_shares("take a GlobalBatchLoader(data, batch_size=..., sampler=sampler) instead of a DataLoader")
        left = self.remaining_indices
        return iter([left[i % len(left)] for i in range(self.rank, self.total_size, self.num_replicas)])

    def __len__(self) -> int:
        return self.num_samples


class _Kept:
    """An object with state_dict() and load_state_dict(), and a copy of its state."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        self.saved = self.copied()

    def copied(self) -> Any:
        return copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(self.saved)

    def broadcast(self) -> None:
        raise NotImplementedError


class _Model(_Kept):
    def broadcast(self) -> None:
        tensors = {k: v for k, v in self.value.state_dict().items() if isinstance(v, torch.Tensor)}
        broadcast_parameters(tensors, root_rank=0)


class _Optimizer(_Kept):
    def restore(self) -> None:
        # It keeps the given tensors, and the next step would change the copy.
        self.value.load_state_dict(copy.deepcopy(self.saved))

    def broadcast(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


class _Sampler(_Kept):
    def broadcast(self) -> None:
        self.value.load_state_dict(broadcast_from_rank_0(self.value.state_dict()))


_KINDS: list[tuple[type, type[_Kept]]] = [
    (torch.nn.Module, _Model),
    (torch.optim.Optimizer, _Optimizer),
    (ElasticSampler, _Sampler),
]


class TorchState(ObjectState):
    """Models, optimizers, samplers and plain values, as attributes: TorchState(model, optimizer, sampler=..., epoch=0).

    A model, optimizer or ElasticSampler under any name is stored by its state_dict; everything else is pickled.
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
        if name in self._kept:
            self._kept[name] = type(self._kept[name])(value)  # for example another model, which restore() must return to
        super().__setattr__(name, value)

    def save(self) -> None:
        """See State.  If there is not enough memory for all of it, the previous copy stays."""
        copies = {name: kept.copied() for name, kept in self._kept.items()}
        super().save()
        self._keep(copies)

    def restore(self) -> None:
        """See State."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def saved_copy(self) -> dict[str, Any]:
        """See State.  NotImplementedError where a handler of the user's own keeps its copy in its own way."""
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
        _need_names("models, optimizers and samplers", self._with_copies(), copy["kept"])
        super().use_saved_copy(copy)
        for name, handler in self._with_copies().items():
            handler.saved = copy["kept"][name]

    def sync(self) -> None:
        """See State."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()
        copies = {name: kept.copied() for name, kept in self._kept.items()}
        check_results()  # a failure up to here leaves the copy unchanged
        for name, kept in self._kept.items():
            kept.saved = copies[name]

    def reset(self) -> None:
        """Samplers divide the remaining samples among the ranks of the new world."""
        for kept in self._kept.values():
            if isinstance(kept, _Sampler):
                kept.value.reset()
