"""The source of a rank's batches: its shard of the table, or the estimator's data_module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from hvd.spark.ml.shard import Shard
from hvd.spark.ml.tables import count_rows
from hvd.spark.ml.training import Training, steps_of


class ShardReader:
    """Batches of this rank's shard.  steps, val_steps (0 without validation): steps of an epoch, the same on all ranks."""

    def __init__(self, training: Training, hvd: Any) -> None:
        settings = training.settings
        self.t, self.rank = training, hvd.rank()
        self.shard, self.val = training.shards(hvd)
        self.size, self.val_size = settings["batch_size"], settings["val_batch_size"] or settings["batch_size"]
        self.steps = steps_of(self.shard, self.size, settings["train_steps_per_epoch"], hvd)
        asked = settings["validation_steps_per_epoch"]
        self.val_steps = steps_of(self.val, self.val_size, asked, hvd) if self.val is not None else 0

    def __enter__(self) -> ShardReader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def train(self, epoch: int) -> Iterator[Any]:
        """An epoch's batches, in its order."""
        order = self.t.order(self.rank, epoch) if self.t.shuffles() else None
        return islice(self.shard.cycle(self.size, order), self.steps)

    def validate(self) -> Iterator[Any]:
        """A validation's batches, in the order of the rows."""
        shard: Shard | None = self.val
        assert shard is not None
        return islice(shard.cycle(self.val_size), self.val_steps)


class DataModuleReader:
    """Batches of a data_module.  The data_module is made with Horovod's arguments, read continuously, and restarted at its end.

    more: further arguments.
    """

    def __init__(self, training: Training, hvd: Any, **more: Any) -> None:
        settings = training.settings
        size = settings["batch_size"]
        val_size = settings["val_batch_size"] or size
        self.steps = settings["train_steps_per_epoch"] or _steps(training, training.train_path, size, hvd)
        asked = settings["validation_steps_per_epoch"]
        self.val_steps = (asked or _steps(training, training.val_path, val_size, hvd)) if training.validates else 0
        self.module = settings["data_module"](
            train_dir=training.store.url(training.train_path),
            val_dir=training.store.url(training.val_path),
            num_train_epochs=settings["epochs"],
            has_val=training.validates,
            train_batch_size=size,
            val_batch_size=val_size,
            shuffle=training.shuffles(),
            transform_fn=settings["transformation_fn"],
            inmemory_cache_all=settings["inmemory_cache_all"],
            cur_shard=hvd.rank(),
            shard_count=hvd.size(),
            schema_fields=training.columns(),
            storage_options=training.store.options,
            steps_per_epoch_train=self.steps,
            steps_per_epoch_val=self.val_steps,
            verbose=settings["verbose"],
            random_seed=settings["random_seed"],
            reader_pool_type=settings["reader_pool_type"],
            train_reader_worker_count=settings["train_reader_num_workers"],
            val_reader_worker_count=settings["val_reader_num_workers"],
            label_cols=training.labels,
            continuous_cols=settings["continuous_cols"],
            categorical_cols=settings["categorical_cols"],
            **more,
        )
        self._train: Iterator[Any] | None = None
        self._val: Iterator[Any] | None = None

    def __enter__(self) -> DataModuleReader:
        self.module = self.module.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self.module.__exit__(*reason)

    def train(self, _epoch: int) -> Iterator[Any]:
        """The next steps' batches."""
        if self._train is None:
            self._train = _endless(self.module.train_data(), "train_data")
        return islice(self._train, self.steps)

    def validate(self) -> Iterator[Any]:
        """Yields the batches of the validation table."""
        if self._val is None:
            self._val = _endless(self.module.val_data(), "val_data")
        return islice(self._val, self.val_steps)


def open_reader(training: Training, hvd: Any) -> ShardReader | DataModuleReader:
    """The reader that the estimator's parameters select."""
    return (DataModuleReader if training.settings["data_module"] else ShardReader)(training, hvd)


def _steps(training: Training, path: str, batch_size: int, hvd: Any) -> int:
    rows = -(-count_rows(training.store, path) // int(hvd.size()))
    return max(1, -(-rows // batch_size))


def _endless(batches: Iterable[Any], name: str) -> Iterator[Any]:
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError(f"the data_module's {name}() has no more batches: it must be read again from its beginning")
