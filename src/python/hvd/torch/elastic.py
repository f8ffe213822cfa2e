"""Elastic states of PyTorch: models, optimizers and samplers to come back to.  What can be recovered: see hvd.elastic."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch

from hvd import _shares, _world
from hvd.elastic import ObjectState, _need_names, broadcast_from_rank_0, check_results, run
from hvd.torch._global_batch import GlobalBatch, GlobalBatchLoader
from hvd.torch.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = ["ElasticSampler", "GlobalBatch", "GlobalBatchLoader", "TorchState", "run"]


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides an epoch among the ranks, and what is left of it anew after a change of the world.

    Tell it of each batch by record_batch(), call set_epoch() at the end of an epoch, and put it into the TorchState.
    All ranks take the same number of samples: at most size - 1 of them come twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which nothing is done yet."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """A batch of this many samples is done, on every rank."""
        self._refuse_shares("record_batch() counts the samples of ranks; a GlobalBatchLoader tells of them itself")
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        """How far it is."""
        shares = {"shares": _shares.kept()} if _shares.kept() else {}
        return {"epoch": self.epoch, "processed_num": self.processed_num, **shares}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Goes on from there, among the ranks there are now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        if "shares" in state_dict:
            _shares.keep(state_dict["shares"])
        self.reset()

    def reset(self) -> None:
        """Divides what is left among the ranks there are now."""
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
    """Something with state_dict() and load_state_dict(), and a copy of its state."""

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
        # It keeps the tensors that it is given, and the next step would change the copy.
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

    A model, optimizer or ElasticSampler under any name is kept by its state_dict; everything else is pickled.
    """

    _kept: dict[str, _Kept]

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        object.__setattr__(self, "_kept", {})
        everything = {"model": model, "optimizer": optimizer, **kwargs}
        plain = {}
        for name, value in everything.items():
            kind = next((kind for type_, kind in _KINDS if isinstance(value, type_)), None)
            if kind is None:
                plain[name] = value
            else:
                self._kept[name] = kind(value)
                object.__setattr__(self, name, value)
        super().__init__(broadcast_from_rank_0, _world.rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._kept:
            self._kept[name] = type(self._kept[name])(value)  # another model, say: it is what restore() goes back to
        super().__setattr__(name, value)

    def save(self) -> None:
        """See State.  Where there is no memory for all of it, the copy is the one before."""
        copies = {name: kept.copied() for name, kept in self._kept.items()}
        super().save()
        for name, kept in self._kept.items():
            kept.saved = copies[name]

    def restore(self) -> None:
        """See State."""
        for kept in self._kept.values():
            kept.restore()
        super().restore()

    def saved_copy(self) -> dict[str, Any]:
        """See State."""
        return {**super().saved_copy(), "kept": {name: kept.saved for name, kept in self._kept.items()}}

    def use_saved_copy(self, copy: Any) -> None:
        """See State."""
        _need_names("models, optimizers and samplers", self._kept, copy["kept"])
        super().use_saved_copy(copy)
        for name, kept in self._kept.items():
            kept.saved = copy["kept"][name]

    def sync(self) -> None:
        """See State."""
        for kept in self._kept.values():
            kept.broadcast()
        super().sync()
        copies = {name: kept.copied() for name, kept in self._kept.items()}
        check_results()  # a failure up to here leaves the copy as it was
        for name, kept in self._kept.items():
            kept.saved = copies[name]

    def reset(self) -> None:
        """Samplers divide what is left among the ranks of the new world."""
        for kept in self._kept.values():
            if isinstance(kept, _Sampler):
                kept.value.reset()
