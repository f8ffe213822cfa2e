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

from hvd._job import step_hooks as _step_hooks
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd.torch import functions as _functions
from hvd.torch import ops as _ops
from hvd.torch._torch_compile import exclude_from_compile, traced_instead
from hvd.torch.c10d import register as _register_c10d
from hvd.torch.compression import Compression
from hvd.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from hvd.torch.ops import *  # noqa: F403 -- the operations that it lists
from hvd.torch.ops import __all__ as _operations
from hvd.torch.optimizer import DistributedOptimizer, _Distributed
from hvd.torch.sync_batch_norm import SyncBatchNorm

if TYPE_CHECKING:
    from hvd.torch import agreement as agreement
    from hvd.torch import elastic as elastic
    from hvd.torch.ddp import DDPSettings as DDPSettings
    from hvd.torch.ddp import ddp_comm_hook as ddp_comm_hook
    from hvd.torch.loader import DataLoader as DataLoader
    from hvd.torch.registered_memory import alloc as alloc
    from hvd.torch.registered_memory import mem_pool as mem_pool
    from hvd.torch.sharded import ShardedOptimizer as ShardedOptimizer

# Loaded on first use, so that importing this package costs less.
_LATER = {
    "DDPSettings": "ddp",
    "DataLoader": "loader",
    "ShardedOptimizer": "sharded",
    "agreement": "agreement",
    "alloc": "registered_memory",
    "ddp_comm_hook": "ddp",
    "elastic": "elastic",
    "mem_pool": "registered_memory",
}

__all__ = [
    *_shared,
    *_operations,
    "Compression",
    "DDPSettings",
    "DataLoader",
    "DistributedOptimizer",
    "ShardedOptimizer",
    "SyncBatchNorm",
    "agreement",
    "allgather_object",
    "alloc",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ddp_comm_hook",
    "elastic",
    "mem_pool",
]


exclude_from_compile(
    [f for module in (_ops, _functions) for name in module.__all__ if callable(f := getattr(module, name))]
    + [_Distributed.step, _Distributed.synchronize]
)
traced_instead(_ops)
_register_c10d()
_step_hooks.framework_is_there()


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'hvd.torch' has no attribute {name!r}")
    module = import_module(f"hvd.torch.{_LATER[name]}")
    value = module if name == _LATER[name] else getattr(module, name)
    globals()[name] = value
    return value
