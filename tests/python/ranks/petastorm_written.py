"""A data set that Petastorm wrote, with its codecs and its schema: read by Petastorm's package, and by pyarrow alone."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hvd.numpy as hvd
from hvd.data import petastorm_reader
from hvd.spark.ml.shard import Shard
from hvd.spark.store import LocalStore

warnings.simplefilter("ignore")  # Petastorm's, about names that pyarrow will remove
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
ROWS = 24
IMAGES = np.arange(ROWS * 6, dtype="float32").reshape(ROWS, 2, 3)
SUM = float(IMAGES.sum())


MADE = []


def new_folder():
    """A folder for all ranks; check_nothing_is_left removes it."""
    made = tempfile.mkdtemp(prefix="hvd-petastorm-") if RANK == 0 else None
    MADE.append(hvd.broadcast_object(made, root_rank=0))
    return MADE[-1]


def written():
    """The folder of a data set as materialize_dataset writes it, without a Spark session."""
    from petastorm.codecs import CompressedNdarrayCodec, NdarrayCodec
    from petastorm.unischema import Unischema, UnischemaField

    folder = pathlib.Path(new_folder())
    if RANK == 0:
        import pickle

        image = UnischemaField("image", np.float32, (2, 3), NdarrayCodec(), False)
        packed = UnischemaField("packed", np.float32, (2, 3), CompressedNdarrayCodec(), False)
        schema = Unischema("Rows", [UnischemaField("id", np.int64, (), None, False), image, packed])
        for part in range(2):
            rows = range(part * ROWS // 2, (part + 1) * ROWS // 2)
            cells = {f.name: [bytes(f.codec.encode(f, IMAGES[i])) for i in rows] for f in (image, packed)}
            table = pa.table({"id": pa.array(list(rows), pa.int64()), **cells})
            pq.write_table(table, folder / f"{part}.parquet", row_group_size=6)
        groups = {f"{part}.parquet": 2 for part in range(2)}
        metadata = {
            b"dataset-toolkit.unischema.v1": pickle.dumps(schema),
            b"dataset-toolkit.num_row_groups_per_file.v1": json.dumps(groups).encode(),
        }
        pq.write_metadata(table.schema.with_metadata(metadata), folder / "_common_metadata")
    hvd.barrier()
    return folder


FOLDER = written()


def check_with_the_package():
    options = {"reader_pool_type": "dummy", "num_epochs": 1, "shuffle_row_groups": False}
    with petastorm_reader(FOLDER.as_uri(), by_row=True, **options) as reader:
        mine = {int(row.id): (row.image, row.packed) for row in reader}
    assert len(mine) == ROWS // SIZE
    for number, arrays in mine.items():
        assert all(np.array_equal(array, IMAGES[number]) for array in arrays), number
    assert set().union(*hvd.allgather_object(set(mine))) == set(range(ROWS))


def check_with_pyarrow_alone():
    shard = Shard(LocalStore(str(FOLDER)), str(FOLDER), ["id", "image", "packed"], RANK, SIZE)
    (batch,) = shard.batches(100)
    assert np.array_equal(batch["image"], IMAGES[batch["id"]]) and np.array_equal(batch["packed"], batch["image"])
    total = hvd.allreduce(np.array([batch["image"].sum()], "float64"), op=hvd.Sum, name="sum")
    assert total[0] == SUM


READS = """
import sys
from hvd.spark.ml.shard import Shard
from hvd.spark.store import LocalStore
shard = Shard(LocalStore(sys.argv[1]), sys.argv[1], ["image", "packed"], 0, 1)
print(sum(float(batch["image"].sum() + batch["packed"].sum()) for batch in shard.batches(7)))
"""


def check_with_another_pyarrow():
    """The pyarrow of the environment with Spark, without Petastorm."""
    python = os.environ.get("HVD_TEST_SPARK", "")
    if RANK == 0 and os.access(python, os.X_OK):
        done = subprocess.run([python, "-c", READS, str(FOLDER)], capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == str(2 * SUM), done.stderr
    hvd.barrier()


def check_other_codecs_are_refused():
    if RANK == 0:
        pq.write_table(pa.table({"image": [b"\x89PNG...."]}), FOLDER / "picture.parquet")
        try:
            Shard(LocalStore(str(FOLDER)), str(FOLDER / "picture.parquet"), ["image"], 0, 1)
        except ValueError as error:
            assert "column 'image' holds a picture, not NumPy arrays" in str(error), str(error)
        else:
            raise AssertionError("no error")
    hvd.barrier()


def check_nothing_is_left():
    hvd.barrier()
    if RANK == 0:
        for folder in MADE:
            shutil.rmtree(folder)
    hvd.barrier()
    assert not any(os.path.exists(folder) for folder in MADE)
