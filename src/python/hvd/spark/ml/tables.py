"""The training table on its way to the ranks: Parquet files written by executors through the store, read by rows.

Each partition is one file, written under a name of its own; the driver lists those whose task succeeded in a file
`_hvd_files.json`, so that a second attempt of a task does no harm.  A rank reads the row groups that hold its rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import numpy

from hvd.spark.ml.columns import Column, as_tensor_type, cell, to_numpy

_LIST = "_hvd_files.json"


def write_table(df: Any, columns: list[Column], store: Any, path: str, rows_per_group: int) -> int:
    """Writes the columns below `path`, in place of what was there; returns the rows.  Empty partitions write nothing."""
    store.delete(path)
    table = df.select(*[cell(df, column) for column in columns])

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        import pyarrow.parquet

        held = [batch for batch in batches if batch.num_rows]
        if held:
            filesystem, folder = store.filesystem(), store.inner(path)
            filesystem.create_dir(folder, recursive=True)
            whole = pyarrow.Table.from_batches(held)
            name = f"{folder}/part-{uuid.uuid4().hex}.parquet"
            pyarrow.parquet.write_table(whole, name, filesystem=filesystem, row_group_size=rows_per_group)
            yield pyarrow.RecordBatch.from_pydict({"file": [name], "rows": [whole.num_rows]})

    found = sorted((row["rows"], row["file"]) for row in table.mapInArrow(write, "file string, rows long").collect())
    store.write(f"{path}/{_LIST}", json.dumps([name for _, name in found]).encode())
    return sum(rows for rows, _ in found)


def files_of(store: Any, path: str) -> list[str]:
    """Those that write_table listed, else every Parquet file below the path (another program's table)."""
    if store.exists(f"{path}/{_LIST}"):
        return list(json.loads(store.read(f"{path}/{_LIST}")))
    return [name for name in store.list(path) if not name.endswith((".json", ".crc"))]


def count_rows(store: Any, path: str) -> int:
    """Of a table, from the files' ends only."""
    from pyarrow import parquet

    filesystem = store.filesystem()
    return sum(parquet.read_metadata(name, filesystem=filesystem).num_rows for name in files_of(store, path))


def read_share(
    store: Any, path: str, names: list[str], rank: int, size: int, transformation: Any = None
) -> tuple[dict[str, Any], int]:
    """(this rank's rows of each column, rows of the whole table).

    Every rank gets the same number of rows, the last ones a few of the next rank's besides, since ranks must take the
    same number of steps.  Only row groups that hold them are read.  transformation: a pandas table in, one out.
    Errors: ValueError for fewer rows than ranks, a missing column, nulls.
    """
    from pyarrow import parquet

    filesystem = store.filesystem()
    files = [parquet.ParquetFile(name, filesystem=filesystem) for name in files_of(store, path)]
    groups = [(file, i, file.metadata.row_group(i).num_rows) for file in files for i in range(file.num_row_groups)]
    total = sum(rows for _, _, rows in groups)
    if total < size:
        raise ValueError(f"{path} has {total} rows for {size} ranks: use fewer ranks or more rows")
    if missing := [name for name in names if name not in files[0].schema_arrow.names]:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(files[0].schema_arrow.names)}")
    share = -(-total // size)
    begin = min(rank * share, total - share)
    table = _rows(groups, names, begin, begin + share)
    if transformation is not None:
        import pyarrow

        table = pyarrow.Table.from_pandas(transformation(table.to_pandas()), preserve_index=False)
    return {name: as_tensor_type(to_numpy(table.column(name), name)) for name in names}, total


def _rows(groups: list[tuple[Any, int, int]], names: list[str], begin: int, end: int) -> Any:
    """Rows [begin, end) of the row groups one behind the other."""
    import pyarrow

    pieces, at = [], 0
    for file, index, rows in groups:
        first, last = max(begin - at, 0), min(end - at, rows)
        if first < last:
            pieces.append(file.read_row_group(index, columns=names).slice(first, last - first))
        at += rows
    return pyarrow.concat_tables(pieces)


def batches(rows: int, batch_size: int, generator: Any | None) -> Iterator[Any]:
    """Row numbers of one batch after the other, in an order of the generator's where there is one."""
    order = generator.permutation(rows) if generator is not None else numpy.arange(rows)
    for at in range(0, rows, batch_size):
        yield order[at : at + batch_size]
