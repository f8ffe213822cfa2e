"""A rank for test_world.py: reinit.py TIMES calls init and shutdown, with and without pending operations."""

import faulthandler
import os
import sys

import numpy as np

import hvd.numpy as hvd

faulthandler.dump_traceback_later(100, exit=True)
for turn in range(int(sys.argv[1])):
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    data = np.full(1 + turn * 37 % 5000, rank + turn, "float32")
    out = hvd.allreduce(data, op=hvd.Sum, name="t")
    assert (out == size * turn + size * (size - 1) / 2).all(), f"turn {turn}: {out}"
    if turn % 2:  # pending: one that all submit, and one that waits for ever
        try:
            handles = [hvd.allreduce_async(np.ones(200_000, "float32"), name="all")]
            handles.append(hvd.allreduce_async(data, name=f"only rank {rank}'s"))
            if turn % 4 == 1:
                hvd.synchronize(handles[0])
        except hvd.HorovodInternalError as error:
            assert "shut down" in str(error), error  # the other rank was faster
    hvd.shutdown()
    assert not hvd.is_initialized()
os.write(1, f"#fine {rank}\n".encode())
