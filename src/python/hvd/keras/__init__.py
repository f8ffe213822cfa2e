"""Distributed training with Keras 3 (on TensorFlow, torch or JAX) and Keras 2, with the names of horovod.keras.

import hvd.keras as hvd

hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])
"""

from __future__ import annotations

from hvd import agreement
from hvd._job import step_hooks as _step_hooks
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd._runtime.objects import allgather_object, broadcast_object
from hvd.keras import callbacks, elastic
from hvd.keras._backend import Compression
from hvd.keras.ops import *  # noqa: F403 -- the operations that it lists
from hvd.keras.ops import __all__ as _operations
from hvd.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer, load_model

__all__ = [
    *_shared,
    *_operations,
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "agreement",
    "allgather_object",
    "broadcast_object",
    "callbacks",
    "elastic",
    "load_model",
]

_step_hooks.framework_is_there()
