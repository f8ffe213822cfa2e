"""Distributed training with TensorFlow, with the names of horovod.tensorflow.

import hvd.tensorflow as hvd

hvd.init()
tape = hvd.DistributedGradientTape(tape)
hvd.broadcast_variables(model.variables, root_rank=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hvd import agreement
from hvd._job import step_hooks as _step_hooks
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd.tensorflow import _graph_input, elastic
from hvd.tensorflow import _op_gradients as _op_gradients  # registers them
from hvd.tensorflow.compression import Compression
from hvd.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from hvd.tensorflow.ops import *  # noqa: F403 -- the operations that it lists
from hvd.tensorflow.ops import __all__ as _operations
from hvd.tensorflow.optimizer import DistributedOptimizer
from hvd.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape

if TYPE_CHECKING:
    from hvd.tensorflow.sync_batch_norm import SyncBatchNormalization as SyncBatchNormalization

__all__ = [
    *_shared,
    *_operations,
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "agreement",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
]

_graph_input.install()
_step_hooks.framework_is_there()


def __getattr__(name: str) -> Any:
    # A Keras layer: some users of TensorFlow do not load Keras, or run Keras on another backend.
    if name == "SyncBatchNormalization":
        from hvd.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module 'hvd.tensorflow' has no attribute {name!r}")
