"""A rank for test_huge.py: more than 2^31 elements of one byte."""

import os

import numpy as np

import hvd.numpy as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
count = (1 << 31) + 77
data = np.full(count, rank + 1, "uint8")
data[-1] = rank + 5
hvd.allreduce_(data, op=hvd.Sum, name="sum")
total = size * (size + 1) // 2
assert data.shape == (count,) and data[-1] == total + 4 * size
for begin in range(0, count - 1, 1 << 28):
    assert (data[begin : min(begin + (1 << 28), count - 1)] == total).all(), begin
data[:] = rank
data[-2:] = 10 + rank
hvd.broadcast_(data, 1, name="broadcast")
assert (data[:100] == 1).all() and data[1 << 31] == 1 and (data[-2:] == 11).all()
del data
rows = count if rank == 0 else 3
gathered = hvd.allgather(np.full(rows, rank + 7, "uint8"), name="gather")
assert gathered.shape == (count + 3 * (size - 1),) and gathered[count - 1] == 7 and gathered[count] == 8
os.write(1, b"#fine\n")
