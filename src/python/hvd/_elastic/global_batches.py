"""Global batches, sized by the first world, as sample numbers, for any number of present ranks and any framework."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

from hvd._elastic import shares as _shares
from hvd._runtime import world as _world


class GlobalBatch:
    """One global batch.  One iteration gives the samples of this rank's micro-batches, as int64 arrays.

    samples: the number of samples on all ranks.  len(): the number of this rank's micro-batches; it may be 0.
    seed: of the current micro-batch, for random draws; it does not depend on the rank that computes it.
    """

    def __init__(self, batches: GlobalBatches, indices: list[int]) -> None:
        shares = _shares.count()
        counts = [len(range(share, len(indices), shares)) for share in range(shares)]
        self.samples = len(indices)
        self.seed = 0
        self._batches, self._indices, self._counts = batches, indices, counts
        self._mine = [share for share in _shares.mine() if counts[share]]
        self._is_begun = self.is_done = False

    def __len__(self) -> int:
        return len(self._mine)

    def __iter__(self) -> Iterator[Any]:
        import numpy as np

        if self._is_begun:
            raise RuntimeError("the micro-batches of a batch come once: keep them in a list to go through them again")
        self._is_begun = True
        for share in self._mine:
            self.seed = self._batches.seed_of(share)
            yield np.array(self._indices[share :: len(self._counts)], np.int64)
        self.is_done = True
        self._batches.processed += self.samples

    def mean(self, found: Sequence[Any]) -> Any:
        """Returns the mean over the global batch of values such as gradients or losses, one for each micro-batch.  Collective.

        found: one value for each of this rank's micro-batches, in their order.  A value is a number, or an array of NumPy, JAX
        or TensorFlow.  It may be a tree of these: lists, tuples, dicts; with JAX, its trees.  Its shape is the same on all
        ranks.  Returns such a tree, the same on all ranks and, bit by bit, in a world of any size.  Not within jit or
        tf.function.  Errors: ValueError for another number of values; TypeError for a value without a mean.
        """
        from hvd._elastic import share_means as _share_means

        if len(found) != len(self):
            raise ValueError(f"{len(found)} values for {len(self)} micro-batches: one for each is needed")
        return _share_means.mean(found, self._counts, self._some_have_none())

    def _some_have_none(self) -> bool:
        """Returns whether any rank has no micro-batch."""
        ranks = [_shares.of_rank(rank, _world.size(), len(self._counts)) for rank in range(_world.size())]
        return not all(any(self._counts[share] for share in shares) for shares in ranks)


class GlobalBatches:
    """The batches of an epoch; an iteration gives the remaining ones.  Put it into the state, as one of its values.

        state = hvd.elastic.ObjectState(..., batches=hvd.elastic.GlobalBatches(len(x), batch_size=16))
        for batch in state.batches:
            losses, gradients = batch.mean([loss_and_gradients(weights, x[some], y[some]) for some in batch])
            ...
            state.commit()
        state.batches.set_epoch(1)

    A batch has batch_size samples for each rank.  Under hvd.elastic.run(keep_global_batch=True) the ranks of the first
    world count, and their shares are divided among the present ranks.  An epoch's last batch has the remaining samples,
    divided as evenly as possible, unless drop_last.  Each sample occurs once.
    samples: their total number.  shuffle: each epoch has its own order, derived from seed.
    Errors: ValueError for a wrong argument; RuntimeError if micro-batches were skipped.
    """

    def __init__(
        self, samples: int, batch_size: int = 1, *, shuffle: bool = True, seed: int = 0, drop_last: bool = False
    ) -> None:
        for name, value in (("samples", samples), ("batch_size", batch_size)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}: it must be at least 1")
        self.samples, self.batch_size, self.shuffle, self.seed, self.drop_last = samples, batch_size, shuffle, seed, drop_last
        self.epoch = self.processed = 0  # finished samples of the epoch, on all ranks

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "shares": _shares.kept()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shares = state.pop("shares")
        if shares:
            _shares.keep(shares)
        self.__dict__.update(state)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch from its first sample."""
        self.epoch, self.processed = epoch, 0

    def seed_of(self, share: int) -> int:
        """The seed of a share of the current batch, for random draws: 63 bits."""
        words = f"{self.seed} {self.epoch} {self.processed} {share}"
        return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little") >> 1

    def __len__(self) -> int:
        """The number of remaining batches of the epoch."""
        return len(self._beginnings(self.samples - self.processed))

    def _beginnings(self, samples: int) -> range:
        size = self.batch_size * _shares.count()
        return range(0, max(samples - (size - 1 if self.drop_last else 0), 0), size)

    def __iter__(self) -> Iterator[GlobalBatch]:
        order = list(range(self.samples))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        left, size = order[self.processed :], self.batch_size * _shares.count()
        for at in self._beginnings(len(left)):
            batch = GlobalBatch(self, left[at : at + size])
            yield batch
            if not batch.is_done:
                raise RuntimeError("a batch's micro-batches were not gone through: `for some in batch:` is needed, to its end")
