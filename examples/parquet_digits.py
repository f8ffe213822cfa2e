"""Training from Parquet files: each rank reads its share of the rows, in a thread ahead of the training.

    hvdrun -np 2 examples/parquet_digits.py

Rank 0 first writes scikit-learn's digits as a folder of Parquet files, as a data pipeline would. Every rank then reads only the
row groups that contain its rows. All ranks get the same number of batches. Needs pyarrow.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional

import hvd.torch as hvd
from hvd.data import AsyncDataLoaderMixin, ParquetBatches


class Reader(AsyncDataLoaderMixin, ParquetBatches):
    """Reads ahead in a thread."""


def write(folder: Path) -> None:
    """Three files, with several row groups each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    digits = load_digits()
    for part in range(3):
        rows = slice(part * 599, (part + 1) * 599)
        columns = {"pixels": list(digits.data[rows].astype("float32") / 16), "digit": digits.target[rows]}
        pq.write_table(pa.table(columns), folder / f"part-{part}.parquet", row_group_size=100)


def main(epochs: int = 8, quiet: bool = False) -> float:
    """Returns the accuracy on the training data, over all ranks."""
    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as mine:
        folder = Path(hvd.broadcast_object(mine, root_rank=0))  # on a cluster: a folder that all hosts share
        if hvd.rank() == 0:
            write(folder)
        hvd.barrier()
        reader = Reader(path=folder, batch_size=32, shuffle=True, async_loader_queue_size=8)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003 * hvd.size())
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        accuracy = 0.0
        for epoch in range(epochs):
            reader.set_epoch(epoch)
            right = 0
            for batch in reader:
                x, y = torch.from_numpy(batch["pixels"]), torch.from_numpy(batch["digit"])
                optimizer.zero_grad()
                scores = model(x)
                functional.cross_entropy(scores, y).backward()
                optimizer.step()
                right += int((scores.argmax(1) == y).sum())
            accuracy = hvd.allreduce(torch.tensor(right / reader.rows), name="accuracy").item()
            if hvd.rank() == 0 and not quiet:
                print(f"epoch {epoch + 1}: {len(reader)} batches a rank, accuracy {accuracy:.1%}", flush=True)
        hvd.barrier()  # rank 0 removes the folder
    return accuracy


if __name__ == "__main__":
    main()
