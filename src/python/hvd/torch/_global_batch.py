"""A DataLoader whose batches are those of all ranks of the first world, whoever is left of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hvd import _shares
from hvd.torch import _share_gradients as gradients
from hvd.torch.ops import moving

__all__ = ["GlobalBatch", "GlobalBatchLoader"]


class _MicroBatches(torch.utils.data.Sampler[list[int]]):
    """What the DataLoader is to load in this iteration."""

    def __init__(self) -> None:
        self.samples: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


class GlobalBatch:
    """One batch of all ranks.  Iterating gives this rank's micro-batches, once: mostly one, more where ranks are missing.

    samples: how many samples it has, on all ranks.  len(): how many micro-batches this rank has; it may be 0.
    """

    def __init__(self, loader: GlobalBatchLoader, loaded: Iterator[Any], indices: list[int]) -> None:
        shares = _shares.count()
        counts = [len(range(share, len(indices), shares)) for share in range(shares)]
        self.samples = len(indices)
        self._loader, self._loaded = loader, loaded
        self._weights = gradients.ShareWeights(counts, [share for share in _shares.mine() if counts[share]])
        self._is_begun = self.is_done = False

    def __len__(self) -> int:
        return len(self._weights.mine)

    def __iter__(self) -> Iterator[Any]:
        if self._is_begun:
            raise RuntimeError("the micro-batches of a batch come once: keep them in a list to go through them again")
        self._is_begun = True
        for share in self._weights.mine:
            gradients.begin(self._weights, share)
            self._loader.seed_for(share)
            yield next(self._loaded)
        gradients.begin(self._weights)
        self.is_done = True
        self._loader.sampler.processed_num += self.samples

    def mean(self, values: Sequence[Any]) -> float:
        """The mean over the whole batch of a number (a loss, say) that each of this rank's micro-batches has.  Collective.

        The same on all ranks, and, bit by bit, in a world of any size.  values: in the order of the micro-batches; numbers,
        or tensors of one element.
        """
        if len(values) != len(self):
            raise ValueError(f"{len(values)} values for {len(self)} micro-batches: one for each is needed")
        mine = torch.tensor(
            [value.item() if isinstance(value, torch.Tensor) else float(value) for value in values], dtype=torch.float64
        )
        found = moving.allgather(mine, "hvd.elastic.mean").tolist()
        total = 0.0
        for value, weight in zip(found, self._weights.weights):
            total += value * weight
        return total


class GlobalBatchLoader:
    """torch's DataLoader, whose batches are those of all ranks: an iteration gives what is left of the sampler's epoch.

        loader = hvd.elastic.GlobalBatchLoader(data, batch_size=16, sampler=sampler)
        for batch in loader:
            optimizer.zero_grad()
            for images, labels in batch:
                loss(model(images), labels).backward()
            optimizer.step()
            state.commit()

    A batch has batch_size samples for each rank: under hvd.elastic.run(keep_global_batch=True) for each rank of the first
    world, whose shares are dealt to those that there are now; otherwise for each of them.  An epoch's last batch has what is
    left, as evenly as it goes, unless drop_last.  Each sample comes once.  hvd.DistributedOptimizer's step() makes the mean
    over all samples of it, in an order that does not depend on the ranks.

    sampler: an ElasticSampler; it hears of what is done from here, not by record_batch().
    seed: each micro-batch begins with torch's random numbers seeded by it, the epoch, the batch and the share, so that
    dropout, say, does not depend on who computes it; None: they are left alone.
    Further arguments: DataLoader's.  What worker processes draw at random depends on who they are.
    Errors: ValueError for a sampler of another kind; RuntimeError where micro-batches were left out.
    """

    def __init__(
        self, dataset: Any, batch_size: int = 1, *, sampler: Any, drop_last: bool = False, seed: int | None = 0, **options: Any
    ) -> None:
        if not hasattr(sampler, "processed_num"):
            raise ValueError(f"GlobalBatchLoader needs an ElasticSampler, not a {type(sampler).__name__}")
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size is {batch_size!r}: it must be at least 1")
        self.sampler, self.batch_size, self.drop_last, self.seed = sampler, batch_size, drop_last, seed
        self._micro_batches = _MicroBatches()
        self._loader: Any = torch.utils.data.DataLoader(dataset, batch_sampler=self._micro_batches, **options)

    def __len__(self) -> int:
        """How many batches are left of the epoch."""
        return len(self._batches(len(self.sampler.dataset) - self.sampler.processed_num))

    def _batches(self, samples: int) -> range:
        """Where each begins."""
        size = self.batch_size * _shares.count()
        return range(0, max(samples - (size - 1 if self.drop_last else 0), 0), size)

    def seed_for(self, share: int) -> None:
        """For what is drawn at random in the next micro-batch."""
        if self.seed is not None:
            words = f"{self.seed} {self.sampler.epoch} {self.sampler.processed_num} {share}"
            torch.manual_seed(int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little") >> 1)

    def __iter__(self) -> Iterator[GlobalBatch]:
        self.sampler.reset()  # what was done since is left out
        left, shares, mine = self.sampler.remaining_indices, _shares.count(), _shares.mine()
        size = self.batch_size * shares
        batches = [left[at : at + size] for at in self._batches(len(left))]
        self._micro_batches.samples = [part for batch in batches for share in mine if (part := batch[share::shares])]
        loaded = iter(self._loader)
        for indices in batches:
            batch = GlobalBatch(self, loaded, indices)
            gradients.begin(batch._weights)
            try:
                yield batch
            finally:
                gradients.end(batch._weights)
            if not batch.is_done:
                raise RuntimeError("a batch's micro-batches were not gone through: `for part in batch:` is needed, to its end")
