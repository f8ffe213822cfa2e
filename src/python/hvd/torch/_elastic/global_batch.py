"""A DataLoader with global batches, sized by the first world, for any number of present ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hvd._elastic import shares as _shares
from hvd.torch._optimizer import share_gradients as gradients
from hvd.torch.ops import collectives

__all__ = ["GlobalBatch", "GlobalBatchLoader"]


class _MicroBatches(torch.utils.data.Sampler[list[int]]):
    """The samples that the DataLoader loads in this iteration."""

    def __init__(self) -> None:
        self.samples: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


class GlobalBatch:
    """One global batch.  One iteration gives this rank's micro-batches: usually one, more if ranks are missing.

    samples: the number of samples on all ranks.  len(): the number of this rank's micro-batches; it may be 0.
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
        """The mean over the whole batch of a number, such as a loss, of each of this rank's micro-batches.  Collective.

        The same on all ranks, and, bit by bit, in a world of any size.  values: in the order of the micro-batches; numbers,
        or tensors of one element.
        """
        if len(values) != len(self):
            raise ValueError(f"{len(values)} values for {len(self)} micro-batches: one for each is needed")
        mine = torch.tensor(
            [value.item() if isinstance(value, torch.Tensor) else float(value) for value in values], dtype=torch.float64
        )
        found = collectives.allgather(mine, "hvd.elastic.mean").tolist()
        total = 0.0
        for value, weight in zip(found, self._weights.weights):
            total += value * weight
        return total


class GlobalBatchLoader:
    """torch's DataLoader with global batches; an iteration gives the rest of the sampler's epoch.

        loader = hvd.elastic.GlobalBatchLoader(data, batch_size=16, sampler=sampler)
        for batch in loader:
            optimizer.zero_grad()
            for images, labels in batch:
                loss(model(images), labels).backward()
            optimizer.step()
            state.commit()

    A batch has batch_size samples for each rank.  Under hvd.elastic.run(keep_global_batch=True) the ranks of the first
    world count, and their shares are divided among the present ranks.  An epoch's last batch has the remaining samples,
    divided as evenly as possible, unless drop_last.  Each sample occurs once.  step() of hvd.DistributedOptimizer takes
    the mean over all samples of the batch.  The order of the additions does not depend on the ranks.

    sampler: an ElasticSampler; the loader updates it, not record_batch().
    seed: torch's random numbers of each micro-batch are seeded by it, the epoch, the batch and the share.  Dropout thus does
    not depend on the rank that computes it.  None: they are left alone.
    Further arguments: DataLoader's.  Random draws of worker processes depend on the process.
    Errors: ValueError for a sampler of another kind; RuntimeError if micro-batches were skipped.
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
        """The number of remaining batches of the epoch."""
        return len(self._batches(len(self.sampler.dataset) - self.sampler.processed_num))

    def _batches(self, samples: int) -> range:
        """The first sample of each batch."""
        size = self.batch_size * _shares.count()
        return range(0, max(samples - (size - 1 if self.drop_last else 0), 0), size)

    def seed_for(self, share: int) -> None:
        """Seeds the random draws of the next micro-batch."""
        if self.seed is not None:
            words = f"{self.seed} {self.sampler.epoch} {self.sampler.processed_num} {share}"
            torch.manual_seed(int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little") >> 1)

    def __iter__(self) -> Iterator[GlobalBatch]:
        self.sampler.reset()  # later samples are left out
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
