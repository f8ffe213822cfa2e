"""ElasticSampler: an epoch that continues after a change of the world."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sized

import torch

from hvd._elastic import shares as _shares
from hvd._runtime import world as _world

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides an epoch among the ranks, and its rest again after a change of the world.

    Report each batch by record_batch(), call set_epoch() at the end of an epoch, and put it into the TorchState.
    All ranks take the same number of samples: at most size - 1 of them occur twice.
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
