"""Sends whole models, optimizer states and Python objects between ranks, as JAX's trees: nested dicts, lists, tuples, ..."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from hvd._runtime import world as _world
from hvd._runtime.objects import allgather_object, broadcast_object
from hvd.jax import _arrays
from hvd.process_sets import ProcessSet, global_process_set

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def broadcast_parameters(params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """root_rank's tree of parameters, as a new tree, because JAX's arrays cannot be overwritten.

    params: any tree, the same on all ranks.  Its arrays travel as arrays (keys of jax.random too); other values (numbers,
    strings) are pickled.  Outside jit.  Errors: ValueError if the trees differ between ranks; HorovodInternalError if shapes
    or dtypes differ.
    """
    _world.need()
    leaves, structure = jax.tree_util.tree_flatten(params)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise TypeError("broadcast_parameters works outside jit: call it once, before the first step")
    kinds = [isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves]
    said = (str(structure), [None if array else leaf for leaf, array in zip(leaves, kinds)])
    root_structure, others = broadcast_object(said, root_rank, process_set=process_set)
    alike = root_structure == str(structure) and [other is None for other in others] == [
        array or leaf is None for leaf, array in zip(leaves, kinds)
    ]
    if not all(allgather_object(alike, process_set=process_set)):
        raise ValueError(f"the ranks' trees differ: here {structure}, on rank {root_rank} {root_structure}")
    arrays = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf, array in zip(leaves, kinds) if array]
    values = [np.array(_arrays.to_numpy(array)) for array in arrays]
    names: list[str | None] = [f"jax.parameters.{i}" for i in range(len(values))]
    _arrays.collectives.synchronize(_arrays.collectives.broadcast_many_async_(values, root_rank, names, process_set))
    received = iter(values)
    results = []
    for leaf, array, other in zip(leaves, kinds, others):
        if not array:
            results.append(other)
            continue
        value = next(received)
        if _is_key(leaf):
            results.append(jax.random.wrap_key_data(jax.numpy.asarray(value), impl=jax.random.key_impl(leaf)))
        else:
            results.append(value if isinstance(leaf, np.ndarray) else _arrays.to_jax(value, leaf))
    return jax.tree_util.tree_unflatten(structure, results)


def broadcast_optimizer_state(state: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """root_rank's optimizer state (optax's, or any tree) as a new tree.  See broadcast_parameters."""
    return broadcast_parameters(state, root_rank, process_set)
