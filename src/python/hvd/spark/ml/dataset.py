"""A DataFrame's columns, split for training and validation, before they are written into the store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hvd.spark.ml import columns as c
from hvd.spark.ml.tables import remove_table, write_table
from hvd.spark.store import Store

__all__ = ["Dataset", "enough", "prepare_data"]


@dataclass
class Dataset:
    """The training data.  validation: a part of the rows, a column that is true for validation rows, or nothing."""

    df: Any
    features: list[str]
    labels: list[str]
    weight: str | None = None
    validation: Any = None
    seed: int | None = None

    def write(self, store: Store, train: str, val: str, ranks: int, rows_per_group: int | None, strict: bool) -> None:
        """Errors: ValueError for unsuitable columns and rows; nothing is written for wrong columns."""
        names = c.describe(self.df, self.features, "feature") + c.describe(self.df, self.labels, "label")
        if self.weight:
            names += c.describe(self.df, [self.weight], "sample weight")
        names = list({column.name: column for column in names}.values())
        train_rows, val_rows = self._split()
        count = 0 if rows_per_group else self.df.count()
        group = rows_per_group or max(1, min(65536, count // (4 * ranks) or 1))
        enough(write_table(train_rows, names, store, train, group, strict), ranks, "training")
        if val_rows is not None:
            enough(write_table(val_rows, names, store, val, group, strict), ranks, "validation")

    def _split(self) -> tuple[Any, Any]:
        """(training rows, validation rows or None)."""
        if not self.validation:
            return self.df, None
        if isinstance(self.validation, str):
            from pyspark.sql import functions as f

            if self.validation not in self.df.columns:
                names = ", ".join(self.df.columns)
                raise ValueError(f"validation column {self.validation!r} is not in the table; it has {names}")
            chosen = f.col(c.quoted(self.validation)).cast("double") > 0
            return self.df.filter(~chosen), self.df.filter(chosen)
        if not 0 < self.validation < 1:
            raise ValueError(f"validation is {self.validation!r}: it must be between 0 and 1, or a column's name")
        seed = 42 if self.seed is None else self.seed
        return tuple(self.df.randomSplit([1 - self.validation, self.validation], seed=seed))


def enough(rows: int, ranks: int, what: str) -> None:
    """ValueError for fewer rows than ranks."""
    if rows < ranks:
        raise ValueError(f"there are {rows} rows for {what} and {ranks} ranks: use fewer ranks or more rows")


_in_use: set[str] = set()


@contextlib.contextmanager
def prepare_data(
    num_processes: int,
    store: Store,
    df: Any,
    label_columns: list[str],
    feature_columns: list[str] | None,
    validation: Any = None,
    sample_weight_col: str | None = None,
    compress_sparse: bool = False,
    partitions_per_process: int = 10,
    verbose: int = 0,
) -> Iterator[Any]:
    """Writes a table into the store permanently, for fit_on_parquet() now and later.

    Returns the dataset_idx for fit_on_parquet.  The index is None, which may be omitted, except in nested prepare_data calls of
    one store.  feature_columns: None for all columns except the labels.
    compress_sparse and partitions_per_process are accepted as in Horovod and change nothing.
    """
    del compress_sparse, partitions_per_process
    if not label_columns:
        raise ValueError("prepare_data needs label_columns: the columns that the model shall predict")
    if num_processes < 1:
        raise ValueError(f"num_processes is {num_processes!r}: it must be at least 1")
    others = {*label_columns, sample_weight_col, validation if isinstance(validation, str) else None}
    features = feature_columns or [name for name in df.columns if name not in others]
    index = None
    while store.get_train_data_path(index) in _in_use:
        index = (index or 0) + 1
    train, val = store.get_train_data_path(index), store.get_val_data_path(index)
    _in_use.add(train)
    try:
        remove_table(store, val)  # an old one, which fit_on_parquet would use with the new table
        Dataset(df, features, label_columns, sample_weight_col, validation).write(store, train, val, num_processes, None, True)
        if verbose:
            print(f"wrote {train}" + (f" and {val}" if validation else ""), flush=True)
        yield index
    finally:
        _in_use.discard(train)
