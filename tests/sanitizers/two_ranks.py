"""The program of each rank in test_two_ranks.py: every operation, many operations at once, re-initialisation."""

from __future__ import annotations

import sys

import numpy as np

import hvd.numpy as hvd


def operations(rank: int, size: int) -> None:
    """All operations and dtypes once, blocking."""
    for dtype in ("uint8", "int8", "int32", "int64", "float16", "float32", "float64"):
        for count in (0, 1, 1000, 300_000):
            total = hvd.allreduce(np.full(count, rank + 1, dtype=dtype), op=hvd.Sum, name=f"sum {dtype} {count}")
            assert total.dtype == dtype and (total == size * (size + 1) // 2).all()
    gathered = hvd.allgather(np.full((rank + 1, 3), rank, dtype="float32"), name="gather")
    assert gathered.shape == (size * (size + 1) // 2, 3)
    sent = hvd.broadcast(np.arange(5.0) if rank == 1 else np.zeros(5), root_rank=1, name="send")
    assert sent.tolist() == [0, 1, 2, 3, 4]
    hvd.barrier()


def many_at_once(rank: int) -> None:
    """Hundreds of tensors under way together, in a different order on each rank."""
    order = range(300) if rank == 0 else reversed(range(300))
    arrays = {i: np.full(10 + 37 * i, i, dtype="float32") for i in order}
    handles = {i: hvd.allreduce_async(array, op=hvd.Average, name=f"t{i}") for i, array in arrays.items()}
    for i, handle in handles.items():
        assert (hvd.synchronize(handle) == i).all()


for _ in range(2):
    hvd.init()
    operations(hvd.rank(), hvd.size())
    many_at_once(hvd.rank())
    hvd.shutdown()
print("all right", file=sys.stderr)
