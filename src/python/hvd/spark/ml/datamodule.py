"""DataModule: the base of classes that read an estimator's tables in the user's own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["DataModule"]


class DataModule(ABC):
    """Made on each rank, entered before the first epoch and left after the last.  Attributes have the arguments' names.

    For a TorchEstimator, train_data() and val_data() return an iterable of batches.  A batch is a dictionary of tensors by
    column, or a pair: the dictionary and the labels.  For a KerasEstimator, they return an argument for fit().
    """

    short_name: str | None = None

    def __init__(
        self,
        train_dir: str,
        val_dir: str,
        num_train_epochs: int = 1,
        has_val: bool = True,
        train_batch_size: int = 32,
        val_batch_size: int = 32,
        shuffle: bool = True,
        transform_fn: Any = None,
        inmemory_cache_all: bool = False,
        cur_shard: int = 0,
        shard_count: int = 1,
        schema_fields: Any = None,
        storage_options: Any = None,
        steps_per_epoch_train: int = 1,
        steps_per_epoch_val: int = 1,
        verbose: Any = True,
        **_others: Any,
    ) -> None:
        self.train_dir, self.val_dir = train_dir, val_dir
        self.num_train_epochs, self.has_val = num_train_epochs, has_val
        self.train_batch_size, self.val_batch_size = train_batch_size, val_batch_size
        self.shuffle, self.transform_fn, self.inmemory_cache_all = shuffle, transform_fn, inmemory_cache_all
        self.cur_shard, self.shard_count = cur_shard, shard_count
        self.schema_fields, self.storage_options = schema_fields, storage_options
        self.steps_per_epoch_train, self.steps_per_epoch_val = steps_per_epoch_train, steps_per_epoch_val
        self.verbose = verbose

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> Any:
        return None

    @abstractmethod
    def train_data(self) -> Any:
        """This rank's training batches."""

    @abstractmethod
    def val_data(self) -> Any:
        """This rank's validation batches."""
