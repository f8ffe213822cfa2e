"""hvd.data on all ranks: shares of Parquet files, reading ahead, and the example that trains from files."""

import pathlib
import runpy
import sys
import tempfile
import threading
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from refusals import raises

import hvd.numpy as hvd
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from hvd.data import ParquetBatches

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
ROWS = (7, 0, 23, 11)


def written():
    folder = pathlib.Path(tempfile.mkdtemp())
    at = 0
    for part, rows in enumerate(ROWS):
        table = pa.table(
            {
                "id": np.arange(at, at + rows),
                "pair": [[i, -i] for i in range(at, at + rows)] or pa.array([], pa.list_(pa.int64())),
            }
        )
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=4)
        at += rows
    return folder


def check_lists_of_different_lengths_and_unfinished_files():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "_temporary").mkdir()
    for name in ("a.parquet", ".b.parquet", "_temporary/a.parquet"):
        pq.write_table(pa.table({"x": [[1, 2], [3, 4], [4], None, [5, 6], [7, 8]]}), folder / name, row_group_size=3)
    first, second, third = (batch["x"] for batch in ParquetBatches(folder, 2, rank=0, size=1))
    assert first.tolist() == [[1, 2], [3, 4]] and third.tolist() == [[5, 6], [7, 8]]
    assert second.dtype == object and list(second[0]) == [4] and second[1] is None
    reader = ParquetBatches(folder, 6, shuffle=True, rank=0, size=1)
    orders = [repr(next(iter(reader))) for _ in range(5)]
    reader.set_epoch(0)
    assert len(set(orders)) > 1 and repr(next(iter(reader))) == orders[0]


def check_nulls():
    """NumPy has no value for them among whole numbers and booleans."""
    file = pathlib.Path(tempfile.mkdtemp()) / "a.parquet"
    table = {
        "n": [1, 2, 3, None],
        "b": [True, None] * 2,
        "l": [[1], [2], None, [None]],
        "f": [0.5, None] * 2,
        "s": ["a", None] * 2,
    }
    pq.write_table(pa.table(table), file, row_group_size=2)
    for name, group in (("n", 1), ("b", 0), ("l", 1)):
        reader = ParquetBatches(file, 2, columns=[name], rank=0, size=1)
        raises(ValueError, partial(list, reader), f"column '{name}' has nulls", f"row group {group}", "columns=")
    assert len(list(ParquetBatches(file, 2, columns=["n"], rank=0, size=2))) == 1  # the other rank has the null
    (first, _) = ParquetBatches(file, 2, columns=["f", "s"], rank=0, size=1)
    assert first["f"][0] == 0.5 and np.isnan(first["f"][1]) and first["s"].tolist() == ["a", None]


def check_shares_are_disjoint_and_equal():
    folder = written()
    reader = ParquetBatches(folder, batch_size=5)
    batches = list(reader)
    assert len(batches) == len(reader) and [len(b["id"]) for b in batches[:-1]] == [5] * (len(batches) - 1)
    mine = [int(i) for b in batches for i in b["id"]]
    rows = sum(ROWS) // SIZE
    assert mine == list(range(RANK * rows, (RANK + 1) * rows)) and reader.rows == rows
    assert batches[0]["pair"].tolist() == [[i, -i] for i in mine[:5]]
    whole = [ParquetBatches(folder, 4, ["id"], drop_last=True, rank=r, size=3) for r in range(3)]
    assert {len(r) for r in whole} == {sum(ROWS) // 3 // 4}
    ids = [int(i) for r in whole for b in r for i in b["id"]]
    assert len(set(ids)) == len(ids) and {name for r in whole for name in next(iter(r))} == {"id"}


def check_shuffled_epochs():
    reader = ParquetBatches(written(), batch_size=6, shuffle=True, seed=2)
    orders = []
    for epoch in (0, 1, 0):
        reader.set_epoch(epoch)
        orders.append([int(i) for b in reader for i in b["id"]])
    assert orders[0] == orders[2] != orders[1] and sorted(orders[0]) == sorted(orders[1])


def check_errors():
    folder = written()
    raises(ValueError, lambda: ParquetBatches(folder, 3, columns=[]), "columns")
    raises(FileNotFoundError, lambda: ParquetBatches(folder / "none", 3), "none")
    raises(ValueError, lambda: ParquetBatches(folder, 0), "batch_size")
    raises(ValueError, lambda: ParquetBatches(folder, 3, columns=["colour"]), "colour", "pair")
    raises(ValueError, lambda: ParquetBatches(folder, 3, rank=3, size=3), "from 0 to 2")


class Numbers(BaseDataLoader):
    def __init__(self, count, fails_at=None):
        self.count, self.fails_at, self.threads = count, fails_at, set()

    def __len__(self):
        return self.count

    def _iterate(self):
        for i in range(self.count):
            self.threads.add(threading.current_thread().name)
            if i == self.fails_at:
                raise OSError("the disk is gone")
            yield i

    def _process_batch(self, batch):
        return batch * 10


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


def ours():
    return [t for t in threading.enumerate() if t.name == "hvd data loader"]


def check_reading_ahead():
    for size in (0, 1, 64):
        loader = AsyncNumbers(count=20, async_loader_queue_size=size)
        for _ in range(2):
            assert list(loader) == [10 * i for i in range(20)]
        assert loader.threads == ({"MainThread"} if size == 0 else {"hvd data loader"})
        assert not ours()
    loader = AsyncNumbers(4, False, 3)  # Horovod's order of arguments
    assert loader.async_loader_queue_size == 4 and len(loader) == 3
    loader = AsyncNumbers(count=1000, async_loader_queue_size=2)
    for batch in loader:
        if batch == 30:
            break
    loader.close_async_loader()
    assert not ours()
    assert next(iter(loader)) == 0
    loader.close_async_loader()
    loader.close_async_loader()


def check_another_iteration_ends_the_first():
    loader = AsyncNumbers(count=10, async_loader_queue_size=2)
    first = iter(loader)
    assert next(first) == 0
    assert len(list(loader)) == 10
    raises(RuntimeError, lambda: list(first), "another one has begun")
    first = iter(loader)
    next(first)
    loader.close_async_loader()
    raises(RuntimeError, lambda: next(first), "close_async_loader() was called")
    assert not ours()


def check_an_error_comes_where_the_batches_do():
    loader = AsyncNumbers(count=9, fails_at=4, async_loader_queue_size=2)
    seen = []

    def run():
        for batch in loader:
            seen.append(batch)

    raises(OSError, run, "disk")
    assert seen == [0, 10, 20, 30] and not ours()


class Leaving(AsyncDataLoaderMixin, BaseDataLoader):
    def _iterate(self):
        yield 0
        sys.exit(3)


def check_an_exit_in_the_loader_ends_the_program():
    raises(SystemExit, lambda: list(iter(Leaving(2))), "3")
    assert not ours()


def check_the_example():
    accuracy = runpy.run_path(str(EXAMPLES / "parquet_digits.py"))["main"](epochs=5)
    assert accuracy > 0.9, accuracy
