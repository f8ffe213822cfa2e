"""Means over a global batch: GlobalBatch.mean().  The bits of a mean do not depend on the number of ranks.

As in hvd.torch._optimizer.share_gradients, the values of each share are kept apart.  Rank d gets the d-th part of every
rank's values.  The rank adds them up in the order of the shares, and sends the sum to all.  Multiplication and addition
are separate calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hvd import numpy as hvd_numpy
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world

_CALLED = "GlobalBatch.mean()"


@dataclass(frozen=True)
class _Leaf:
    """The framework, shape and type of an array."""

    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def mean(found: Sequence[Any], counts: Sequence[int], some_have_none: bool) -> Any:
    """found: the values of this rank's shares that have samples.  counts: samples of all shares.  Collective."""
    trees = [_flattened(tree) for tree in found]
    leaves, rebuild = [list(map(_leaf_of, tree[0])) for tree in trees], trees[0][1] if trees else None
    for other in leaves[1:]:
        if other != leaves[0]:
            raise ValueError(f"{_CALLED}: a micro-batch has {other}, another one {leaves[0]}")
    if some_have_none:  # such ranks do not know the form of the values; rank 0 always does
        described = _objects.broadcast_object(rebuild(leaves[0]) if rebuild else None, 0, "hvd.elastic.mean.tree")
        if rebuild is None:
            flat, rebuild = _flattened(described)
            leaves = [flat]
    assert rebuild is not None
    weights = [count / sum(counts) for count in counts if count]
    results: list[Any] = [None] * len(leaves[0])
    for number, some in enumerate(_by_type(leaves[0])):
        mine = [[_to_array(tree[0][at]) for at in some] for tree in trees]
        sums = _add_up(mine, [leaves[0][at] for at in some], weights, f"hvd.elastic.mean.{number}")
        for at, total in zip(some, sums):
            results[at] = _from_array(total, leaves[0][at].kind)
    return rebuild(results)


def _by_type(leaves: Sequence[_Leaf]) -> list[list[int]]:
    """Positions of arrays of one type, in their order."""
    found: dict[np.dtype[Any], list[int]] = {}
    for at, leaf in enumerate(leaves):
        found.setdefault(leaf.dtype, []).append(at)
    return list(found.values())


def _add_up(mine: list[list[Any]], leaves: Sequence[_Leaf], weights: Sequence[float], name: str) -> list[Any]:
    """[my shares][leaves] → the weighted sums over all shares, for each leaf."""
    size, lengths = _world.size(), [int(np.prod(leaf.shape)) for leaf in leaves]
    elements, dtype = sum(lengths), leaves[0].dtype
    width = -(-elements // size)  # rank d adds up columns d * width to (d + 1) * width
    rows = np.zeros((len(mine), width * size), dtype)
    for row, arrays in zip(rows, mine):
        np.concatenate([array.reshape(-1) for array in arrays], out=row[:elements])
    if size > 1:
        parts = rows.reshape(len(mine), size, width).transpose(1, 0, 2).reshape(len(mine) * size, width)
        rows, _ = hvd_numpy.alltoall(parts, np.full(size, len(mine), np.int32), name=f"{name}.parts")
    assert len(rows) == len(weights), "ranks disagree about the shares of a batch"
    total = _sum(rows, weights)
    if size > 1:
        total = hvd_numpy.allgather(total, name=f"{name}.sums")
    ends = np.cumsum(lengths)
    return [total[end - length : end].reshape(leaf.shape) for end, length, leaf in zip(ends, lengths, leaves)]


def _sum(rows: Any, weights: Sequence[float]) -> Any:
    """The weighted sum, in the order of the shares."""
    total: Any = None
    for row, weight in zip(rows, weights):
        weighted = (row.astype(np.float32) if row.dtype.itemsize < 4 else row) * weight
        total = weighted if total is None else total + weighted
    return total.astype(rows.dtype, copy=False)


# ---- frameworks


def _leaf_of(value: Any) -> _Leaf:
    kind = _kind_of(value)
    if kind == "number":
        return _Leaf(kind, (), np.dtype(np.float64))
    dtype = np.dtype(value.dtype.as_numpy_dtype if kind == "tensorflow" else value.dtype)
    if dtype.kind not in "fcV":  # V: the types of ml_dtypes
        raise TypeError(f"{_CALLED}: an array of {dtype} has no mean: make it one of floating-point numbers")
    return _Leaf(kind, tuple(int(n) for n in value.shape), dtype)


def _kind_of(value: Any) -> str:
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, (np.ndarray, np.generic)):
        return "numpy"
    if (jax := sys.modules.get("jax")) and isinstance(value, jax.Array):
        return "jax"
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and isinstance(value, (tensorflow.Tensor, tensorflow.Variable, tensorflow.IndexedSlices)):
        return "tensorflow"
    if type(value).__module__.split(".")[0] == "torch":
        raise TypeError(f"{_CALLED} takes no torch tensors: see hvd.torch.elastic.GlobalBatchLoader")
    raise TypeError(f"{_CALLED} takes numbers, arrays of NumPy, JAX and TensorFlow, and trees of them, no {type(value)}")


def _to_array(value: Any) -> Any:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and isinstance(value, tensorflow.IndexedSlices):
        value = tensorflow.convert_to_tensor(value)
    if tensorflow and isinstance(value, tensorflow.Tensor) and not hasattr(value, "numpy"):
        raise TypeError(f"{_CALLED} is for eager tensors: call it outside of tf.function")
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _from_array(total: Any, kind: str) -> Any:
    if kind == "jax":
        return sys.modules["jax"].numpy.asarray(total)
    if kind == "tensorflow":
        return sys.modules["tensorflow"].convert_to_tensor(total)
    return float(total) if kind == "number" else total


# ---- trees


def _flattened(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The leaves, and a function that makes a tree of the same structure of other leaves."""
    if jax := sys.modules.get("jax"):
        leaves, structure = jax.tree_util.tree_flatten(tree)
        return leaves, lambda others: jax.tree_util.tree_unflatten(structure, others)
    leaves = []
    _collect(tree, leaves)
    return leaves, lambda others: _rebuilt(tree, iter(others))


def _collect(tree: Any, leaves: list[Any]) -> None:
    if isinstance(tree, dict):
        for key in sorted(tree):
            _collect(tree[key], leaves)
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            _collect(one, leaves)
    elif tree is not None:
        leaves.append(tree)


def _rebuilt(tree: Any, leaves: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _rebuilt(tree[key], leaves) for key in sorted(tree)}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_rebuilt(one, leaves) for one in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(_rebuilt(one, leaves) for one in tree)
    return None if tree is None else next(leaves)
