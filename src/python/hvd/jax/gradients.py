"""Gradients reduced over all ranks: for optax, and for hand-written training loops.

Gradients are submitted in calls of 32 MiB each, last layer first.  One call per gradient would cost an operation in the
program for every array.  One call for all would begin only when the last gradient is there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hvd._elastic import shares as _shares
from hvd._native import ALLREDUCE, Average
from hvd._runtime.arguments import checked_predivide, reduce_op
from hvd.jax import _primitive
from hvd.jax._primitive import Operation
from hvd.jax.compression import Compression, Compressor
from hvd.process_sets import ProcessSet, global_process_set, number_of

__all__ = [
    "DistributedGradient",
    "DistributedOptimizer",
    "GradientTransformation",
    "allreduce_gradients",
    "grad",
    "value_and_grad",
]

BATCH_BYTES = 32 << 20


class GradientTransformation(NamedTuple):
    """The building block of optax's optimizers: init(params) returns a state; update(gradients, state, params) returns new
    ones.
    """

    init: Callable[..., Any]
    update: Callable[..., Any]


def _sparse(leaf: Any) -> bool:
    return hasattr(leaf, "todense") and not hasattr(leaf, "aval")


def _end_of_names(paths: Sequence[str], lacking: Sequence[str]) -> str:
    """The end of the operations' names: a checksum of the gradients' paths, and the paths that are None.  Thus ranks with
    gradients of different parameters wait for each other; without it they would add them up.
    """
    without = "".join(lacking)
    end = f".without.{without if len(without) < 40 else f'{zlib.crc32(without.encode()):08x}'}" if lacking else ""
    return f".{zlib.crc32(' '.join(paths).encode()):08x}{end}"


def _batches(sizes: Sequence[int]) -> list[list[int]]:
    """Indices of arrays of these sizes in bytes, last first, in batches of BATCH_BYTES (or one larger array)."""
    batches: list[list[int]] = []
    room = 0
    for i in reversed(range(len(sizes))):
        if not batches or sizes[i] > room:
            batches.append([])
            room = BATCH_BYTES
        batches[-1].append(i)
        room -= sizes[i]
    return batches


def allreduce_gradients(
    gradients: Any,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    sparse_as_dense: bool = False,
    name: str | None = None,
) -> Any:
    """A tree of gradients, reduced over all ranks: a tree of the same structure, inside jit or outside.

    None stays None.  Ranks whose trees have other keys, or None elsewhere, wait for each other: give zeros there.
    gradient_predivide_factor: with Average, divides the gradients by it before they are added, and the sum by the rest.
    sparse_as_dense: gradients of jax.experimental.sparse are made dense; otherwise they are a ValueError.
    """
    _shares.refuse_reduction("a reduction of gradients")
    gradient_predivide_factor = checked_predivide(gradient_predivide_factor, op)
    found, structure = jax.tree_util.tree_flatten_with_path(gradients, is_leaf=lambda leaf: leaf is None or _sparse(leaf))
    paths, leaves = [jax.tree_util.keystr(path) for path, _ in found], [leaf for _, leaf in found]
    for i, leaf in enumerate(leaves):
        if _sparse(leaf):
            if not sparse_as_dense:
                raise ValueError(
                    f"a sparse gradient ({type(leaf).__name__}) cannot be reduced as it is: set sparse_as_dense=True"
                )
            leaves[i] = leaf.todense()
    lacking = [path for path, leaf in zip(paths, leaves) if leaf is None]
    live = [i for i, leaf in enumerate(leaves) if leaf is not None and getattr(leaf, "dtype", None) != jax.dtypes.float0]
    end = _end_of_names([paths[i] for i in live], lacking)
    pairs = [compression.compress(jnp.asarray(leaves[i])) for i in live]
    before = 1.0 / gradient_predivide_factor
    call = Operation(ALLREDUCE, None, process_set, reduce_op(op, None), 0, False, before, gradient_predivide_factor)
    for number, batch in enumerate(_batches([small.size * small.dtype.itemsize for small, _ in pairs])):
        named = call._replace(name=f"{name or 'gradients'}.{number}{end}")
        for at, out in zip(batch, _primitive.bind(named, [pairs[i][0] for i in batch])):
            leaves[live[at]] = compression.decompress(out, pairs[at][1])
    return jax.tree_util.tree_unflatten(structure, leaves)


def DistributedGradient(
    optimizer: Any = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    backward_passes_per_step: int = 1,
    process_set: ProcessSet = global_process_set,
    sparse_as_dense: bool = False,
    name: str | None = None,
) -> GradientTransformation:
    """An optax gradient transformation that reduces the gradients over all ranks, then passes them to optimizer.

    optimizer: an optax transformation, or None for use in optax.chain(hvd.DistributedGradient(), ...).
    backward_passes_per_step: with n, every nth call updates the parameters from the sum of the last n gradients.  The other
    calls return updates of zero.  name: needed only if two transformations run at the same time.
    update's gradients: any tree; inside jit or outside.  Errors: ValueError for a wrong argument.
    """
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}: it must be at least 1")
    if optimizer is not None and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(f"optimizer must be a gradient transformation with init and update, not a {type(optimizer).__name__}")
    checked_predivide(gradient_predivide_factor, op)
    number_of(process_set)

    def reduced(gradients: Any) -> Any:
        return allreduce_gradients(gradients, compression, op, gradient_predivide_factor, process_set, sparse_as_dense, name)

    def init(params: Any) -> Any:
        return () if optimizer is None else optimizer.init(params)

    def update(gradients: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        together = reduced(gradients)
        return (together, state) if optimizer is None else optimizer.update(together, state, params, **more)

    once = GradientTransformation(init, update)
    return once if backward_passes_per_step == 1 else _accumulating(once, backward_passes_per_step)


DistributedOptimizer = DistributedGradient


class AccumulatedState(NamedTuple):
    """calls: [] int32, since the last step.  total: the sum of the gradients since then."""

    calls: Any
    total: Any
    inner: Any


def _accumulating(step: GradientTransformation, passes: int) -> GradientTransformation:
    def init(params: Any) -> AccumulatedState:
        return AccumulatedState(jnp.zeros((), jnp.int32), jax.tree_util.tree_map(jnp.zeros_like, params), step.init(params))

    def update(gradients: Any, state: AccumulatedState, params: Any = None, **more: Any) -> tuple[Any, AccumulatedState]:
        total = jax.tree_util.tree_map(jnp.add, state.total, gradients)
        zeros = jax.tree_util.tree_map(jnp.zeros_like, total)

        def take(_: None) -> Any:
            updates, inner = step.update(total, state.inner, params, **more)
            return jax.tree_util.tree_map(lambda u, z: u.astype(z.dtype), updates, zeros), zeros, inner

        last = state.calls == passes - 1
        updates, left, inner = jax.lax.cond(last, take, lambda _: (zeros, total, state.inner), None)
        return updates, AccumulatedState(jnp.where(last, 0, state.calls + 1), left, inner)

    return GradientTransformation(init, update)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    average_value: bool = True,
    **more: Any,
) -> Callable[..., Any]:
    """jax.value_and_grad with gradients that are reduced over all ranks, and a value that is averaged by default.

    fun: this rank's loss.  aux stays this rank's.  Further arguments are jax.value_and_grad's.
    """
    inner = jax.value_and_grad(fun, argnums, has_aux, **more)

    def both(*args: Any, **kwargs: Any) -> Any:
        value, gradients = inner(*args, **kwargs)
        gradients = allreduce_gradients(gradients, compression, op, gradient_predivide_factor, process_set)
        if average_value:
            loss, rest = (value[0], value[1:]) if has_aux else (value, ())
            mean = _primitive.bind(Operation(ALLREDUCE, "loss", process_set, Average), [jnp.asarray(loss)])[0]
            value = (mean, *rest) if has_aux else mean
        return value, gradients

    return both


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    **more: Any,
) -> Callable[..., Any]:
    """jax.grad with gradients that are reduced over all ranks.  See value_and_grad."""
    both = value_and_grad(fun, argnums, has_aux, compression, op, gradient_predivide_factor, process_set, False, **more)

    def only(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return only
