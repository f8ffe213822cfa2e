"""Distributed training with MXNet, with the names of horovod.mxnet.

import hvd.mxnet as hvd

hvd.init()
hvd.broadcast_parameters(net.collect_params(), root_rank=0)
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1 * hvd.size()})
"""

from __future__ import annotations

from hvd import agreement
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd.mxnet.compression import Compression
from hvd.mxnet.functions import (
    allgather_object,
    broadcast_object,
    broadcast_parameters,
)
from hvd.mxnet.ops import *  # noqa: F403 -- the operations that it lists
from hvd.mxnet.ops import __all__ as _operations
from hvd.mxnet.training import (
    DistributedOptimizer,
    DistributedTrainer,
)

__all__ = [
    *_shared,
    *_operations,
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "agreement",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
]
