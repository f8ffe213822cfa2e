"""Training from a Parquet data set through Petastorm, which divides its row groups among the ranks, with NumPy only.

    hvdrun -np 2 examples/petastorm_digits.py

Rank 0 writes scikit-learn's digits as a Parquet data set first. Needs Petastorm (0.13, which requires numpy<1.24, pyarrow<15
and pyspark<3.6). Row groups do not divide evenly, so ranks have different numbers of batches. All ranks take as many steps as
the rank with the fewest batches.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

import hvd.numpy as hvd
from hvd.data import petastorm_reader

PIXELS = [f"p{i}" for i in range(64)]


def write(folder: Path) -> None:
    """A column for each pixel, and one for the digit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    digits = load_digits()
    columns: dict[str, Any] = {name: digits.data[:, i].astype("float32") / 16 for i, name in enumerate(PIXELS)}
    table = pa.table({**columns, "digit": digits.target.astype("int64")})
    pq.write_table(table, folder / "digits.parquet", row_group_size=50)


def batches(url: str, epoch: int) -> list[tuple[Any, Any]]:
    """This rank's pixels and digits of an epoch, a batch for each row group."""
    with petastorm_reader(
        url, reader_pool_type="thread", workers_count=1, shuffle_row_groups=True, shard_seed=1, num_epochs=1
    ) as reader:
        return [(np.stack([getattr(part, name) for name in PIXELS], 1), part.digit) for part in reader]


def main(epochs: int = 25, rate: float = 1.0, quiet: bool = False) -> float:
    """Softmax regression. Returns the accuracy on the training data, over all ranks."""
    warnings.simplefilter("ignore")  # Petastorm's, about names that pyarrow will remove
    hvd.init()
    weights = np.zeros((65, 10), "float32")
    with tempfile.TemporaryDirectory() as mine:
        folder = Path(hvd.broadcast_object(mine, root_rank=0))
        if hvd.rank() == 0:
            write(folder)
        hvd.barrier()
        accuracy = 0.0
        for epoch in range(epochs):
            parts = batches(folder.as_uri(), epoch)
            steps = min(hvd.allgather_object(len(parts)))
            right = rows = 0
            for pixels, digit in parts[:steps]:
                x = np.concatenate([pixels, np.ones((len(pixels), 1), "float32")], 1)
                scores = np.exp(x @ weights)
                chances = scores / scores.sum(1, keepdims=True)
                right, rows = right + int((chances.argmax(1) == digit).sum()), rows + len(digit)
                gradient = x.T @ (chances - np.eye(10, dtype="float32")[digit]) / len(x)
                weights -= rate * hvd.allreduce(gradient.astype("float32"), name="gradient")
            counts = hvd.allreduce(np.array([right, rows], "float64"), name="counts", op=hvd.Sum)
            accuracy = float(counts[0] / counts[1])
            if hvd.rank() == 0 and not quiet:
                print(f"epoch {epoch + 1}: {steps} steps, accuracy {accuracy:.1%}", flush=True)
        hvd.barrier()
    return accuracy


if __name__ == "__main__":
    main()
