"""collectives.py [STEPS [PAUSE]]: every operation, from numpy, in a loop."""

import sys
import time

import numpy

import hvd.numpy as hvd

hvd.init()
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0
small = numpy.ones(10, numpy.float32)
large = numpy.ones((1000, 300), numpy.float64)
for _ in range(steps):
    handles = [hvd.allreduce_async(small, name=f"small.{i}") for i in range(5)]
    for handle in handles:
        hvd.synchronize(handle)
    hvd.allreduce(large, name='a "large" one')
    hvd.broadcast(small, root_rank=0, name="weights")
    hvd.allgather(numpy.full(hvd.rank() + 1, 7, numpy.int32), name="rows")
    hvd.barrier()
    time.sleep(pause)
hvd.shutdown()
