"""Distributed training with PyTorch, with the names of horovod.torch.

import hvd.torch as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hvd._stop import should_stop
from hvd._world import *  # noqa: F403 -- the queries that it lists
from hvd._world import __all__ as _queries
from hvd.exceptions import HorovodInternalError
from hvd.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.torch.compression import Compression
from hvd.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from hvd.torch.ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    poll,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
    synchronize,
)
from hvd.torch.optimizer import DistributedOptimizer
from hvd.torch.sync_batch_norm import SyncBatchNorm

if TYPE_CHECKING:
    from hvd.torch import elastic as elastic
    from hvd.torch.ddp import DDPSettings as DDPSettings
    from hvd.torch.ddp import ddp_comm_hook as ddp_comm_hook
    from hvd.torch.loader import DataLoader as DataLoader
    from hvd.torch.sharded import ShardedOptimizer as ShardedOptimizer

# Loaded when they are used: importing this package costs a rank of a large job less.
_LATER = {
    "DDPSettings": "ddp",
    "DataLoader": "loader",
    "ShardedOptimizer": "sharded",
    "ddp_comm_hook": "ddp",
    "elastic": "elastic",
}

__all__ = [
    *_queries,
    "Adasum",
    "Average",
    "Compression",
    "DDPSettings",
    "DataLoader",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ShardedOptimizer",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ddp_comm_hook",
    "elastic",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "should_stop",
    "sparse_allreduce_async",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'hvd.torch' has no attribute {name!r}")
    module = import_module(f"hvd.torch.{_LATER[name]}")
    value = module if name == _LATER[name] else getattr(module, name)
    globals()[name] = value
    return value
