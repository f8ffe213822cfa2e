"""Readers that give each rank its share of a Parquet data set: plain Parquet with pyarrow, or through Petastorm."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hvd._runtime import world as _world
from hvd.data.loader import BaseDataLoader

__all__ = ["ParquetBatches", "petastorm_reader"]


class ParquetBatches(BaseDataLoader):
    """This rank's share of a Parquet file or a folder of such files, in batches.  A batch is a dictionary of NumPy arrays by
    column.

    All ranks get the same number of rows, and thus of batches; the last rows % size are left out.  So no rank waits for
    another at the end of an epoch.  A rank reads only row groups that contain its rows, one at a time.

    path: a file or a folder.  A folder's .parquet files are used in the order of their names.  Names with "_" or "." at the
    start are left out.  batch_size: rows.
    columns: by default all.  shuffle: row groups and the rows in them, in another order in each epoch.
    drop_last: leave out a smaller last batch.
    rank, size: by default this rank's; they need init() then.
    Errors: FileNotFoundError for a path without files; ImportError without pyarrow; ValueError for other arguments.  While
    reading, ValueError for nulls among whole numbers or booleans, which would change the dtype of some batches.  Other nulls
    are NaN in floats, NaT in times, and None elsewhere.
    """

    def __init__(
        self,
        path: str | Path,
        batch_size: int,
        columns: Sequence[str] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        size: int | None = None,
    ) -> None:
        import pyarrow.parquet as pq

        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
        if columns is not None and not columns:
            raise ValueError("columns is empty: name at least one, or give None for all")
        self._open = pq.ParquetFile
        self.files = _files(Path(path))
        self.batch_size, self.columns = batch_size, list(columns) if columns is not None else None
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        rank = _world.rank() if rank is None else rank
        size = _world.size() if size is None else size
        if not 0 <= rank < size:
            raise ValueError(f"rank is {rank}: it must be from 0 to {size - 1}")
        self._parts, self.rows = self._share(rank, size)

    def _share(self, rank: int, size: int) -> tuple[list[tuple[Path, int, int, int]], int]:
        """The row groups with rows of this rank, as (file, row group, first row, rows), and this rank's number of rows."""
        groups = []
        for file in self.files:
            with self._open(file) as opened:
                known = set(opened.schema_arrow.names)
                if self.columns is not None and not set(self.columns) <= known:
                    raise ValueError(f"{file} has no column {sorted(set(self.columns) - known)} (there are {sorted(known)})")
                counts = [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
            groups += [(file, i, count) for i, count in enumerate(counts)]
        rows = sum(count for _, _, count in groups) // size
        first, last, at = rank * rows, (rank + 1) * rows, 0
        parts = []
        for file, index, count in groups:
            start, end = max(first - at, 0), min(last - at, count)
            if start < end:
                parts.append((file, index, start, end - start))
            at += count
        return parts, rows

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, which selects the order if rows are shuffled.  Further epochs count on."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.rows // self.batch_size if self.drop_last else -(-self.rows // self.batch_size)

    def _read(self, part: tuple[Path, int, int, int], order: random.Random) -> dict[str, Any]:
        file, group, start, count = part
        with self._open(file) as opened:
            table = opened.read_row_group(group, columns=self.columns).slice(start, count)
        for name in table.column_names:
            if nulls := _nulls_without_value(table.column(name)):
                raise ValueError(
                    f"{file}: column {name!r} has nulls among its numbers ({nulls} of this rank's in row group {group}): drop "
                    "or fill them before, or leave the column out with columns="
                )
        rows = list(range(count))
        if self.shuffle:
            order.shuffle(rows)
        return {name: table.column(name).to_numpy()[rows] for name in table.column_names}

    def _iterate(self) -> Iterator[dict[str, Any]]:
        import numpy as np

        order = random.Random(f"{self.seed} {self.epoch}")
        self.epoch += 1
        parts = list(self._parts)
        if self.shuffle:
            order.shuffle(parts)
        left: dict[str, Any] = {}
        for part in parts:
            read = self._read(part, order)
            left = {name: np.concatenate([left[name], array]) for name, array in read.items()} if left else read
            rows = len(next(iter(left.values())))
            whole = rows - rows % self.batch_size
            for at in range(0, whole, self.batch_size):
                yield {name: _stacked(array[at : at + self.batch_size]) for name, array in left.items()}
            left = {name: array[whole:] for name, array in left.items()}
        if left and len(next(iter(left.values()))) and not self.drop_last:
            yield {name: _stacked(array) for name, array in left.items()}


def _files(path: Path) -> list[Path]:
    found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if path.is_dir():  # unfinished files of writers, and hidden ones
        found = [file for file in found if not any(part[0] in "_." for part in file.relative_to(path).parts)]
    if not found or not all(file.is_file() for file in found):
        raise FileNotFoundError(f"{path}: there is no such Parquet file, nor a folder with .parquet files in it")
    return found


def _nulls_without_value(column: Any) -> int:
    """The number of nulls that have no value in NumPy.  column: of pyarrow."""
    import pyarrow as pa

    kinds = pa.types
    while kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type):
        flat = [chunk.flatten() for chunk in column.chunks]
        column = pa.chunked_array(flat, column.type.value_type)
    nulls: int = column.null_count
    return nulls if kinds.is_integer(column.type) or kinds.is_boolean(column.type) else 0


def _stacked(array: Any) -> Any:
    """[rows, ...]: lists become a matrix if all of them have one length; otherwise they stay an array of objects."""
    import numpy as np

    alike = array.dtype == object and len({getattr(row, "shape", None) for row in array}) == 1
    return np.stack(array) if alike and isinstance(array[0], np.ndarray) else array


def petastorm_reader(url: str, by_row: bool = False, **options: Any) -> Any:
    """petastorm.make_batch_reader(url, ...) for this rank's share: cur_shard and shard_count are set.

    by_row: petastorm.make_reader instead, for data sets that Petastorm wrote: a row at a time, with decoded arrays.
    Petastorm divides by row groups.  The data set needs at least one row group for each rank.  Ranks may get different numbers
    of rows: use hvd.torch.join, or stop at the least number.
    Errors: ImportError without petastorm.
    """
    from petastorm import make_batch_reader, make_reader

    made = make_reader if by_row else make_batch_reader
    return made(url, cur_shard=_world.rank(), shard_count=_world.size(), **options)
