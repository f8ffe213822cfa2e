"""The training table for the ranks: Parquet files that executors write through the store.

Each partition is one file under a unique name.  The driver lists the files of successful tasks in `_hvd_files.json`.  So a
second attempt of a task does no harm.  shard.py reads them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from itertools import chain
from typing import Any

from hvd.spark.ml.columns import Column, Looks, cell

_LIST = "_hvd_files.json"


def write_table(df: Any, columns: list[Column], store: Any, path: str, rows_per_group: int, strict: bool = True) -> int:
    """Writes the columns below `path` and replaces a table there; returns the rows.  Empty partitions write nothing.

    The files are listed in the order of the partitions.  So the same table gives ranks the same rows again.  strict:
    ValueError, after the whole table was checked, for nulls and for arrays of different lengths.
    """
    remove_table(store, path)
    names = [column.name for column in columns]
    # mapInArrow would take a name with a dot for a field of a column.
    table = df.select(*[cell(df, column).alias(f"c{number}") for number, column in enumerate(columns)])

    def write(plain: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        looks = Looks(names)
        batches = (pyarrow.RecordBatch.from_arrays(batch.columns, names=names) for batch in plain)
        name, rows = _write_file(batches, store, path, rows_per_group, looks)
        part = TaskContext.get().partitionId()  # type: ignore[union-attr]
        if rows:
            told = {"part": [part], "file": [name], "rows": [rows], "looks": [looks.text()]}
            yield pyarrow.RecordBatch.from_pydict(told)

    found = table.mapInArrow(write, "part long, file string, rows long, looks string").collect()
    if strict:
        Looks.check([Looks.of(row["looks"]) for row in found], names)
    listed = sorted((row["part"], row["file"]) for row in found)
    store.write(f"{path}/{_LIST}", json.dumps([name for _, name in listed]).encode())
    return sum(row["rows"] for row in found)


def remove_table(store: Any, path: str) -> None:
    """Errors: ValueError for a folder that also contains other files."""
    if others := [name for name in store.list(path) if not name.endswith(".parquet")]:
        raise ValueError(f"{path} is to be replaced by a table, but holds {others[0]}: choose another path for it")
    store.delete(path)


def _write_file(batches: Iterator[Any], store: Any, path: str, rows_per_group: int, looks: Looks) -> tuple[str, int]:
    """One partition: (file, rows), no file for no rows.  Holds a row group at a time."""
    import pyarrow
    from pyarrow import parquet

    filesystem, folder = store.filesystem(), store.inner(path)
    name, rows = f"{folder}/part-{uuid.uuid4().hex}.parquet", 0
    writer, held = None, []
    try:
        for batch in chain(batches, [None]):  # None: the end
            if batch is not None and batch.num_rows:
                looks.add(batch)
                rows += batch.num_rows
                held.append(batch)
                if sum(part.num_rows for part in held) < rows_per_group:
                    continue
            if held:
                if writer is None:
                    filesystem.create_dir(folder, recursive=True)
                    writer = parquet.ParquetWriter(name, held[0].schema, filesystem=filesystem)
                table = pyarrow.Table.from_batches(held)
                whole = table.num_rows if batch is None else table.num_rows // rows_per_group * rows_per_group
                writer.write_table(table.slice(0, whole), row_group_size=rows_per_group)
                held = table.slice(whole).to_batches()
    finally:
        if writer is not None:
            writer.close()
    return name, rows


def files_of(store: Any, path: str) -> list[str]:
    """The files that write_table listed, else every Parquet file below the path (another program's table)."""
    if store.exists(f"{path}/{_LIST}"):
        return list(json.loads(store.read(f"{path}/{_LIST}")))
    return [name for name in store.list(path) if not name.endswith((".json", ".crc"))]


def count_rows(store: Any, path: str) -> int:
    """The number of rows of a table, read from the files' footers only."""
    from pyarrow import parquet

    filesystem = store.filesystem()
    return sum(parquet.read_metadata(name, filesystem=filesystem).num_rows for name in files_of(store, path))
