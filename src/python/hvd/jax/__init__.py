"""Distributed training with JAX: outside jit and inside it, with gradients and vmap, and for optax.

import hvd.jax as hvd

hvd.init()
params = hvd.broadcast_parameters(params, root_rank=0)
optimizer = hvd.DistributedGradient(optax.adam(1e-3))        # averages the gradients of all ranks, then Adam

One device per process: hvdrun starts the processes, and this package works between them.
"""

from __future__ import annotations

from hvd import agreement
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd.jax import elastic
from hvd.jax._library import forget_failures
from hvd.jax.compression import Compression
from hvd.jax.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from hvd.jax.gradients import (
    DistributedGradient,
    DistributedOptimizer,
    allreduce_gradients,
    grad,
    value_and_grad,
)
from hvd.jax.ops import *  # noqa: F403 -- the operations that it lists
from hvd.jax.ops import __all__ as _operations

__all__ = [
    *_shared,
    *_operations,
    "Compression",
    "DistributedGradient",
    "DistributedOptimizer",
    "agreement",
    "allgather_object",
    "allreduce_gradients",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "forget_failures",
    "grad",
    "value_and_grad",
]
