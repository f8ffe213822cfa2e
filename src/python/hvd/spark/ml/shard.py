"""A rank's rows of a training table, as batches, in bounded memory.

The table's rows are numbered through its files and row groups; a rank has those from rank * rows on.  Row groups are read
piece by piece, in an order that depends on the epoch, into a pool.  Batches are drawn from the pool at random.  As in
Petastorm's shuffling queue, a batch mixes rows from distant places of the table, within the limits of the pool.  A shard that
fits into the pool is read once and kept, and its order is then completely random.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy

from hvd.spark.ml.columns import as_tensor_type, to_numpy
from hvd.spark.ml.tables import files_of

# The pool's default size, and the size of a piece.
POOL_BYTES = 256 << 20
PIECE_BYTES = 16 << 20
PIECE_ROWS = 8192

Batch = dict[str, Any]


@dataclass(frozen=True)
class _Group:
    """The part of a row group that belongs to this rank."""

    file: str
    index: int
    first: int
    rows: int
    row_bytes: float  # as stored


class Shard:
    """This rank's rows.  Batches are dictionaries of arrays by column, [rows] or [rows, length].

    Every rank gets the same number of rows, since ranks must take the same number of steps.  The last ranks therefore also
    get a few rows of the next rank.  pool_rows: most rows to hold, by default as many as fit into POOL_BYTES.  A few more
    pieces are in memory while they are mixed.  transformation: a function from a pandas table to another, called each time a
    piece is read.
    Errors: ValueError for fewer rows than ranks, a missing column, and, while reading, nulls and arrays of different
    lengths.
    """

    def __init__(
        self,
        store: Any,
        path: str,
        names: list[str],
        rank: int,
        size: int,
        pool_rows: int | None = None,
        transformation: Any = None,
    ) -> None:
        self.filesystem, self.path, self.names = store.filesystem(), path, names
        self.transformation = transformation
        groups = list(self._groups(files_of(store, path)))
        total = sum(group.rows for group in groups)
        if total < size:
            raise ValueError(f"{path} has {total} rows for {size} ranks: use fewer ranks or more rows")
        self.rows = -(-total // size)
        self.groups = _within(groups, min(rank * self.rows, total - self.rows), self.rows)
        self._shapes: dict[str, Any] = {}
        self._kept: Batch | None = None
        self.first = self._first()
        row_bytes = max(1, sum(value.nbytes for value in self.first.values()) // max(1, _rows(self.first)))
        self.pool_rows = max(1, pool_rows or POOL_BYTES // row_bytes)

    def _groups(self, files: list[str]) -> Iterator[_Group]:
        """All row groups of the table; their files are not kept open."""
        from pyarrow import parquet

        for name in files:
            with parquet.ParquetFile(name, filesystem=self.filesystem) as file:
                known = file.schema_arrow.names
                if missing := [column for column in self.names if column not in known]:
                    raise ValueError(f"{name} has no column {', '.join(missing)}; it has {', '.join(known)}")
                for index in range(file.num_row_groups):
                    group = file.metadata.row_group(index)
                    if group.num_rows:
                        yield _Group(name, index, 0, group.num_rows, group.total_byte_size / group.num_rows)

    def _first(self) -> Batch:
        """One row."""
        for piece in self._read(self.groups, 64):
            if _rows(piece):
                return {name: value[:1] for name, value in piece.items()}
        raise self._nothing()

    def _nothing(self) -> ValueError:
        return ValueError(f"transformation_fn left a rank none of its {self.rows} rows of {self.path}")

    def count(self) -> int:
        """The number of rows after the transformation, which only reading determines."""
        return sum(_rows(piece) for piece in self._read(self.groups))

    def batches(self, batch_size: int, order: Any = None) -> Iterator[Batch]:
        """Every row once.  order: a numpy Generator that draws the order; without it, rows keep the table's order."""
        if self.transformation is None and self.rows <= self.pool_rows:
            if self._kept is None:
                self._kept = _joined(list(self._read(self.groups)))
            yield from _cut(self._kept, batch_size, order)
            return
        pool: list[Batch] = []
        held = 0
        groups = self.groups if order is None else [self.groups[i] for i in order.permutation(len(self.groups))]
        for piece in self._read(groups):
            pool.append(piece)
            held += _rows(piece)
            if held >= self.pool_rows and held >= batch_size:
                out = max(held // 2 // batch_size, 1) * batch_size if order is not None else held // batch_size * batch_size
                mixed = _joined(pool)
                places = numpy.arange(held) if order is None else order.permutation(held)
                pool, held = [{name: value[places[out:]] for name, value in mixed.items()}], held - out
                yield from _cut(mixed, batch_size, chosen=places[:out])
                del mixed
        if held:
            yield from _cut(_joined(pool), batch_size, order)

    def cycle(self, batch_size: int, order: Any = None) -> Iterator[Batch]:
        """batches() again and again: for epochs with more steps than rows.  Errors: ValueError if there are no rows."""
        while True:
            empty = True
            for batch in self.batches(batch_size, order):
                empty = False
                yield batch
            if empty:
                raise self._nothing()

    def _read(self, groups: list[_Group], most: int = PIECE_ROWS) -> Iterator[Batch]:
        """Pieces of at most `most` rows, each of one row group."""
        from pyarrow import Table, parquet

        for group in groups:
            rows = max(1, min(most, int(PIECE_BYTES / max(group.row_bytes, 1.0))))
            with parquet.ParquetFile(group.file, filesystem=self.filesystem) as file:
                at, end = 0, group.first + group.rows
                for batch in file.iter_batches(rows, row_groups=[group.index], columns=self.names):
                    first, last = max(group.first - at, 0), min(end - at, batch.num_rows)
                    at += batch.num_rows
                    if first < last:
                        yield self._arrays(Table.from_batches([batch.slice(first, last - first)]))
                    if at >= end:
                        break

    def _arrays(self, table: Any) -> Batch:
        """The piece as arrays, all of them of the first piece's shapes."""
        if self.transformation is not None:
            from pyarrow import Table

            table = Table.from_pandas(self.transformation(table.to_pandas()), preserve_index=False)
            if missing := [name for name in self.names if name not in table.column_names]:
                raise ValueError(f"transformation_fn returned a table without {', '.join(missing)}")
        arrays = {name: as_tensor_type(to_numpy(table.column(name), name)) for name in self.names}
        if not _rows(arrays):
            return arrays
        for name, value in arrays.items():
            if self._shapes.setdefault(name, value.shape[1:]) != value.shape[1:]:
                raise ValueError(f"column {name!r} has arrays of different lengths: all rows need the same")
        return arrays


def _rows(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def _within(groups: list[_Group], begin: int, rows: int) -> list[_Group]:
    """The parts of the consecutive groups that hold rows [begin, begin + rows)."""
    found, at = [], 0
    for group in groups:
        first, last = max(begin - at, 0), min(begin + rows - at, group.rows)
        if first < last:
            found.append(_Group(group.file, group.index, first, last - first, group.row_bytes))
        at += group.rows
    return found


def _joined(pieces: list[Batch]) -> Batch:
    """Concatenates the pieces; empties them column by column, so that little is in memory twice."""
    pieces = [piece for piece in pieces if _rows(piece)] or pieces[:1]
    if len(pieces) == 1:
        return pieces[0]
    return {name: numpy.concatenate([piece.pop(name) for piece in pieces]) for name in list(pieces[0])}


def _cut(whole: Batch, batch_size: int, order: Any = None, chosen: Any = None) -> Iterator[Batch]:
    """Batches of the rows `chosen`, by default all of them in a drawn order."""
    if chosen is None:
        rows = _rows(whole)
        chosen = numpy.arange(rows) if order is None else order.permutation(rows)
    for at in range(0, len(chosen), batch_size):
        places = chosen[at : at + batch_size]
        yield {name: value[places] for name, value in whole.items()}
