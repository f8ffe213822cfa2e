"""Folders and tables for the checks of the estimators' ranks: the same on all ranks, made by rank 0."""

import pathlib
import shutil
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hvd.numpy as hvd
from hvd.spark.store import LocalStore

X = np.linspace(-1, 1, 60).astype("float32")

_made: list[str] = []


def new_folder() -> str:
    """A folder for all ranks; remove_folders() removes it.  Collective."""
    made = tempfile.mkdtemp(prefix="hvd-estimator-") if hvd.rank() == 0 else None
    _made.append(hvd.broadcast_object(made, root_rank=0))
    return _made[-1]


def remove_folders() -> None:
    """Removes the folders once no rank needs them.  Collective."""
    hvd.barrier()
    if hvd.rank() == 0:
        for folder in _made:
            shutil.rmtree(folder)
    hvd.barrier()
    assert not any(pathlib.Path(folder).exists() for folder in _made)


def store() -> LocalStore:
    return LocalStore(new_folder())


def written(kept: LocalStore, **columns: object) -> str:
    """The training table of a store: x is X, with these columns of equal length.  Collective."""
    path = kept.get_train_data_path()
    if hvd.rank() == 0:
        kept.write(f"{path}/_SUCCESS", b"")
        pq.write_table(pa.table({"x": X, **columns}), f"{path}/part.parquet", row_group_size=8)
    hvd.barrier()
    return path
