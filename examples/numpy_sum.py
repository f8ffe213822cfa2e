"""The smallest job: each rank contributes a row of numbers, and all get their sum.

hvdrun -np 2 examples/numpy_sum.py
"""

import numpy as np

import hvd.numpy as hvd

hvd.init()
total = hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum)
assert total.tolist() == [hvd.size() * (hvd.size() + 1) / 2] * 4
print(f"rank {hvd.rank()} of {hvd.size()} has {total}")
