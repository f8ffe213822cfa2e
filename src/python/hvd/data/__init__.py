"""Data loaders and sharded readers.  No framework."""

from __future__ import annotations

from hvd._job.step_hooks import Watched as watched
from hvd.data.loader import AsyncDataLoaderMixin, BaseDataLoader
from hvd.data.parquet import ParquetBatches, petastorm_reader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader", "ParquetBatches", "petastorm_reader", "watched"]
