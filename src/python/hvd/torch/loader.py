"""torch's DataLoader for this rank's share of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DistributedSampler, IterableDataset, get_worker_info
from torch.utils.data._utils import worker as _worker

from hvd.process_sets import ProcessSet, global_process_set

__all__ = ["DataLoader"]


@contextmanager
def _no_worker() -> Iterator[None]:
    """get_worker_info() returns None inside.  With a worker's number, many streams would keep only that worker's samples."""
    info, _worker._worker_info = _worker._worker_info, None
    try:
        yield
    finally:
        _worker._worker_info = info


def _whole(stream: Any) -> Iterator[Any]:
    """All samples of the stream, in any worker."""
    with _no_worker():
        samples = iter(stream)
    while True:
        with _no_worker():
            try:
                sample = next(samples)
            except StopIteration:
                return
        yield sample


class _Share(IterableDataset[Any]):
    """Every size-th sample of a stream, divided among the ranks and, within a rank, among the loader's workers."""

    def __init__(self, stream: Any, rank: int, size: int) -> None:
        self._stream, self._rank, self._size = stream, rank, size

    def __len__(self) -> int:
        """The number of this rank's samples, if the stream knows its length."""
        return (len(self._stream) - self._rank + self._size - 1) // self._size

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        mine, every = number * self._size + self._rank, self._size * workers
        for index, sample in enumerate(_whole(self._stream)):
            if index % every == mine:
                yield sample


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch.utils.data.DataLoader with this rank's batches: batch_size is that of one rank.

    With shuffle, each iteration divides a data set with indices anew.  All ranks use the same permutation (seed + epoch).  All
    ranks get the same number of batches.  For this, at most size - 1 samples occur twice, or are left out (drop_last).  Every
    rank reads a stream (IterableDataset) whole, in each worker, and keeps its share: a stream sees no get_worker_info().  The
    ranks' numbers of batches may then differ by one (see hvd.join).
    Errors: ValueError for a sampler or batch_sampler of your own, which would need to know the ranks.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        *args: Any,
        seed: int = 0,
        drop_last: bool = False,
        process_set: ProcessSet = global_process_set,
        **kwargs: Any,
    ) -> None:
        if args or kwargs.get("sampler") is not None or kwargs.get("batch_sampler") is not None:
            raise ValueError("hvd.torch.DataLoader divides the samples itself: use torch's with a sampler of your own")
        size, rank = process_set.size(), process_set.rank()
        if size is None or rank is None:
            raise ValueError("hvd is not initialised, or this process set was not added: call hvd.init() first")
        self._epoch = -1
        if isinstance(dataset, IterableDataset):
            if shuffle:
                raise ValueError("a stream cannot be shuffled here: shuffle it where it is made")
            super().__init__(_Share(dataset, rank, size), batch_size, drop_last=drop_last, **kwargs)
            return
        sampler: Any = DistributedSampler(dataset, size, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
        super().__init__(dataset, batch_size, sampler=sampler, drop_last=drop_last, **kwargs)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next iteration, for example after a checkpoint.  Without it they count from 0."""
        self._epoch = epoch - 1

    def __iter__(self) -> Any:
        self._epoch += 1
        if isinstance(self.sampler, DistributedSampler):
            self.sampler.set_epoch(self._epoch)
        return super().__iter__()
