"""The estimators' tables on the ranks' side, without Spark: shards, their order, their memory, their errors."""

import json
import pathlib
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from estimator_tables import new_folder, remove_folders
from refusals import raises

import hvd.numpy as hvd
from hvd.spark.ml.shard import Shard
from hvd.spark.ml.tables import count_rows
from hvd.spark.ml.training import Training, steps_of
from hvd.spark.store import LocalStore

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def table(rows, files=1, group=10, width=0, **more):
    """A store and its training table: numbers from 0, and a column of arrays."""
    folder = new_folder()
    store = LocalStore(folder)
    path = pathlib.Path(store.get_train_data_path())
    if RANK == 0:
        path.mkdir(parents=True)
        for number, part in enumerate(np.array_split(np.arange(rows), files)):
            columns = {"id": part, **{name: value[part] for name, value in more.items()}}
            if width:
                columns["x"] = pa.FixedSizeListArray.from_arrays(np.repeat(part, width).astype("float32"), width)
            pq.write_table(pa.table(columns), path / f"{number}.parquet", row_group_size=group)
    hvd.barrier()
    return store, str(path)


def shard(made, *names, pool=None, transformation=None, size=None):
    store, path = made
    return Shard(store, path, list(names) or ["id"], RANK % (size or SIZE), size or SIZE, pool, transformation)


def ids(batches):
    return np.concatenate([batch["id"] for batch in batches]).tolist()


def check_shares_are_equal_and_cover_the_table():
    made = table(103, files=4, group=7)
    assert count_rows(*made) == 103
    own = ids(shard(made).batches(10))
    everybody = hvd.allgather_object(own)
    assert {len(other) for other in everybody} == {52}
    assert set().union(*everybody) == set(range(103)) and own == sorted(own)


def check_more_ranks_than_row_groups_and_files_without_rows():
    made = table(5, files=8, group=100)  # three of the files are empty
    assert ids(shard(made, size=5).batches(2)) == [RANK]
    raises(ValueError, lambda: shard(made, size=6), "has 5 rows for 6 ranks")


def check_the_order_is_drawn_and_can_be_repeated():
    for pool in (None, 8):  # kept, and streamed
        mine = shard(table(100, files=2, group=10), pool=pool)
        natural = ids(mine.batches(8))
        one, other, again = (ids(mine.batches(8, np.random.default_rng(seed))) for seed in (1, 2, 1))
        assert one == again and one != other and one != natural
        assert sorted(one) == sorted(other) == natural


def check_rows_of_distant_groups_meet_as_far_as_the_pool_reaches():
    mine = shard(table(2000, group=10), pool=400)
    first = next(mine.batches(50, np.random.default_rng(0)))["id"]
    assert len(set((first // 10).tolist())) > 15  # of at least that many of the 40 groups in the pool


def check_memory_is_bounded_by_the_pool():
    """A shard of 64 MB, a pool of 1 MB: the peak memory of NumPy and Arrow."""
    rows, width = 32_000, 1000
    made = table(rows, files=4, group=500, width=width)
    mine = shard(made, "id", "x", pool=250, size=2)
    assert mine.rows * width * 4 >= 64e6
    pool = pa.default_memory_pool()
    before, seen = pool.bytes_allocated(), 0
    tracemalloc.start()
    most = 0
    for batch in mine.batches(50, np.random.default_rng(0)):
        seen += len(batch["id"])
        most = max(most, pool.bytes_allocated() - before)
    numpy_most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == mine.rows
    # A piece (2 MB, a row group), the pool with it, the mixed copy and its rest; Arrow holds a row group or two.
    assert numpy_most < 12e6 and most < 12e6, (numpy_most, most)


def check_a_share_that_fits_is_read_once():
    made = table(40)
    mine = shard(made)
    first = ids(mine.batches(7))
    hvd.barrier()
    if RANK == 0:
        (pathlib.Path(made[1]) / "0.parquet").unlink()
    hvd.barrier()
    assert ids(mine.batches(7)) == first


def check_the_transformation_sees_pieces_and_may_filter():
    def even_twice(frame):
        frame = frame[frame["id"] % 2 == 0]
        return frame.assign(id=frame["id"] * 2)

    mine = shard(table(100, group=10), transformation=even_twice)
    assert mine.count() == 25 and ids(mine.batches(6)) == list(range(100 * RANK, 100 * RANK + 100, 4))
    raises(ValueError, lambda: shard(table(100), transformation=lambda f: f[f["id"] < 0]), "left a rank none of its 50 rows")
    raises(ValueError, lambda: shard(table(100), transformation=lambda f: f.drop(columns="id")), "without id")


def check_ranks_take_the_same_steps_after_a_filter():
    """Rank 0 keeps ten rows, rank 1 all fifty: both take ten batches of five, and rank 0 uses its rows five times."""
    mine = shard(table(100, group=10), transformation=lambda f: f[(f["id"] >= 50) | (f["id"] < 10)])
    assert steps_of(mine, 5, None, hvd) == 10 and steps_of(mine, 5, 3, hvd) == 3
    batches = mine.cycle(5)
    taken = [next(batches) for _ in range(10)]
    assert len(set(ids(taken))) == (10 if RANK == 0 else 50)


def check_names_with_points_and_backticks():
    """A point in a name does not select a field: `a.b` is one column, even if a column `a` exists."""
    values = np.arange(20.0)
    made = table(20, **{"a.b": values, "a.b.c": -values, "x`y": 2 * values, "a": 3 * values})
    for names in (["a.b"], ["a"], ["a.b", "x`y", "a.b.c"]):
        (batch,) = shard(made, *names, size=1).batches(20)
        assert list(batch) == names and (batch[names[0]] == (values if names[0] == "a.b" else 3 * values)).all(), names


def check_cells_that_do_not_serve():
    made = table(4, v=np.array([[1.0], [1.0], [1.0], [1.0, 2.0]], dtype=object))
    if RANK == 0:
        path = pathlib.Path(made[1]) / "1.parquet"
        pq.write_table(pa.table({"id": [7], "v": pa.array([None], pa.list_(pa.float64()))}), path)
    hvd.barrier()
    raises(ValueError, lambda: list(shard(made, "v", size=1).batches(4)), "column 'v' has arrays of different lengths (1 to 2)")
    hvd.barrier()
    if RANK == 0:
        (pathlib.Path(made[1]) / "0.parquet").unlink()
    hvd.barrier()
    raises(ValueError, lambda: list(shard(made, "v", size=1).batches(4)), "column 'v' has 1 nulls: drop or fill")
    raises(ValueError, lambda: shard(made, "w", size=1), "has no column w; it has id, v")


def check_files_that_the_driver_listed_count():
    """Of two attempts of one task, only the successful one counts."""
    store, path = table(30, files=3)
    if RANK == 0:
        store.write(f"{path}/_hvd_files.json", json.dumps([f"{path}/0.parquet", f"{path}/2.parquet"]).encode())
    hvd.barrier()
    assert count_rows(store, path) == 20 and set(ids(shard((store, path)).batches(5))) <= {*range(10), *range(20, 30)}


def check_orders_follow_seed_rank_and_epoch():
    def drawn(seed, rank, epoch):
        return Training(None, "", [], [], None, False, {"random_seed": seed}, None).order(rank, epoch).random(4).tolist()

    assert drawn(1, 0, 0) == drawn(1, 0, 0)
    assert len({tuple(drawn(*given)) for given in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1))}) == 4
    assert drawn(None, 0, 0) != drawn(None, 0, 0)


def check_nothing_is_left():
    remove_folders()
