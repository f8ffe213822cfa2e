"""Distributed training with Keras 3 (on TensorFlow, torch or JAX), with the names of horovod.keras.

import hvd.keras as hvd

hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])
"""

from __future__ import annotations

from hvd._objects import allgather_object, broadcast_object
from hvd._submission import Adasum, Average, Max, Min, Product, Sum
from hvd._world import *  # noqa: F403 -- the queries that it lists
from hvd._world import __all__ as _queries
from hvd.exceptions import HorovodInternalError
from hvd.keras import callbacks, elastic
from hvd.keras._backend import Compression
from hvd.keras.ops import allgather, allreduce, broadcast, broadcast_global_variables, broadcast_variables, reducescatter
from hvd.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer, load_model
from hvd.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    *_queries,
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "global_process_set",
    "load_model",
    "reducescatter",
    "remove_process_set",
]
