# mypy: disable-error-code="no-untyped-call, attr-defined, misc, untyped-decorator"
"""All operations as one JAX primitive: tracing, differentiation, batching and compilation.

Order.  In a compiled program an operation begins when the previous one has ended, by JAX's ordered effects.  XLA may run
independent code in any order, on its own threads.  Ranks that waited for each other's operations in different orders would
wait for ever.  So the order is the program's. The order includes branches, loops and functions that are called twice, and
continues from one program to the next.  Arrays of one call travel together.  Handlers never wait: they give XLA a future (if
jaxlib has futures), so computation continues meanwhile.

Names.  Ranks match operations by name: the program's name, and a count of the operations during compilation.  If one rank
compiles a function again, for other shapes, it uses the same names.

The private parts of JAX used here (effects, tokens, custom_call) are common to versions 0.5 to 0.10.  From 0.4.30 on
everything works outside jit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax._src import ad_util, effects
from jax._src.interpreters import mlir
from jax.interpreters import ad, batching

from hvd._native import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    KIND_NAMES,
    REDUCE_NAMES,
    REDUCESCATTER,
    Adasum,
    Average,
    Sum,
)
from hvd._runtime import world as _world
from hvd._runtime.arguments import checked_factor, checked_name
from hvd.jax import _arrays, _library
from hvd.process_sets import ProcessSet, number_of

try:
    from jax.extend.core import Primitive
except ImportError:
    from jax.core import Primitive  # type: ignore[no-redef, attr-defined, unused-ignore]
from jax.core import ShapedArray
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo as hlo

_MARK = "hvd"


class Operation(NamedTuple):
    """The values that all executions of an operation share."""

    kind: int
    name: str | None
    process_set: ProcessSet
    op: int = Sum
    root_rank: int = 0
    group: bool = False
    prescale: float = 1.0
    postscale: float = 1.0
    rows: tuple[int, ...] | None = (
        None  # allgather: each array's rows on all ranks together, if parts are those of reducescatter
    )

    def gradient(self, **changes: Any) -> Operation:
        """The operation that computes the gradient of this operation.  Its name ends in ".gradient"."""
        return self._replace(name=self.name and self.name + ".gradient", **changes)


class _InOrder(effects.Effect):
    __str__ = __repr__ = lambda self: "hvd"  # type: ignore[assignment]


_effect = _InOrder()
for _types in ("lowerable", "ordered", "control_flow_allowed", "custom_derivatives_allowed", "remat_allowed"):
    getattr(effects, _types + "_effects").add_type(_InOrder)

_p = Primitive("hvd")
_p.multiple_results = True


def bind(operation: Operation, arrays: Sequence[Any]) -> list[Any]:
    """Applies the operation to arrays, some of which are traced."""
    _check(operation)
    return list(_p.bind(*arrays, operation=operation))


def traced(arrays: Sequence[Any]) -> bool:
    """Returns whether JAX is tracing one of the arrays.  Without arrays: whether JAX is tracing at all."""
    if arrays:
        return any(isinstance(array, jax.core.Tracer) for array in arrays)
    return isinstance(jnp.zeros(()) + 0, jax.core.Tracer)


def _check(operation: Operation) -> None:
    _world.need()
    checked_name(operation.name)
    checked_factor(operation.prescale, "prescale_factor")
    checked_factor(operation.postscale, "postscale_factor")
    if number_of(operation.process_set) is None:
        raise ValueError("this process set does not exist (anymore): see add_process_set")
    if not operation.process_set.included():
        raise ValueError(f"this rank is not a member of {operation.process_set}")


_traced_in = (_world.rank(), _world.size()) if _world.is_initialized() else None


def _forget_programs(world: _world.World) -> None:
    """Forgets compiled programs, whose shapes depend on their world: in a world of another size they are compiled again."""
    global _traced_in
    if _traced_in not in (None, (world.rank, world.size)):
        jax.clear_caches()
    _traced_in = world.rank, world.size


_world.at_new_world.append(_forget_programs)


def part_of(rows: int, process_set: ProcessSet) -> int:
    """The number of rows that reducescatter gives this rank, of `rows` in total."""
    size, place = process_set.size() or 1, process_set.rank() or 0
    return rows // size + (place < rows % size)


def _out_shape(operation: Operation, index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    size = operation.process_set.size() or 1
    kind = KIND_NAMES[operation.kind]
    if operation.kind == ALLGATHER:
        rows = shape[0] if shape else 1
        return (rows * size if operation.rows is None else operation.rows[index], *shape[1:])
    if operation.kind in (REDUCESCATTER, ALLTOALL) and not shape:
        raise ValueError(f"{kind} needs an array with at least one dimension, not a scalar")
    if operation.kind == REDUCESCATTER:
        return (part_of(shape[0], operation.process_set), *shape[1:])
    if operation.kind == ALLTOALL and shape[0] % size:
        raise ValueError(f"alltoall without splits: {shape[0]} rows cannot be divided equally among {size} ranks")
    return shape


@_p.def_effectful_abstract_eval
def _abstract(*avals: Any, operation: Operation) -> Any:
    return [ShapedArray(_out_shape(operation, i, aval.shape), aval.dtype) for i, aval in enumerate(avals)], {_effect}


@_p.def_impl
def _run(*arrays: Any, operation: Operation) -> list[Any]:
    """Runs the operation outside jit: gradients and batches of uncompiled code."""
    o = operation
    values = [_arrays.to_numpy(array) for array in arrays]
    hvd = _arrays.collectives
    names = [o.name if len(values) == 1 else o.name and f"{o.name}.{i}" for i in range(len(values))]
    if o.kind == BARRIER:
        hvd.barrier(o.process_set)
        return []
    if o.kind == ALLREDUCE and o.group:
        call = (o.op, o.prescale, o.postscale, o.process_set)
        return _arrays.to_jax_all(hvd.grouped_allreduce(values, None, o.name, *call), arrays)
    handles: list[int] = []
    for value, name in zip(values, names):
        if o.kind == ALLREDUCE:
            handles.append(hvd.allreduce_async(value, None, name, o.op, o.prescale, o.postscale, o.process_set))
        elif o.kind == REDUCESCATTER:
            handles.append(hvd.reducescatter_async(value, name, o.op, o.process_set, o.prescale, o.postscale))
        elif o.kind == BROADCAST:
            handles.append(hvd.broadcast_async(value, o.root_rank, name, o.process_set))
        elif o.kind == ALLGATHER:
            handles.append(hvd.allgather_async(_arrays.rows(value), name, o.process_set))
        else:
            handles.append(hvd.alltoall_async(value, None, name, o.process_set))
    outs = [hvd.synchronize(handle) for handle in handles]
    return _arrays.to_jax_all([out[0] if o.kind == ALLTOALL else out for out in outs], arrays)


# ---- gradients: all of these operations but Min, Max, Product and Adasum are linear


def _tangents(primals: Sequence[Any], tangents: Sequence[Any], *, operation: Operation) -> Any:
    if operation.kind in (ALLREDUCE, REDUCESCATTER) and operation.op not in (Average, Sum):
        raise NotImplementedError(
            f"{KIND_NAMES[operation.kind]} with op={REDUCE_NAMES[operation.op]} has no gradient in JAX: use Average or Sum, or"
            " put it behind jax.lax.stop_gradient"
        )
    outs = _p.bind(*primals, operation=operation)
    moving = [i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero and _real(primals[i])]
    changes = [_unchanged(out) for out in outs]
    if moving:
        changed = _p.bind(*(tangents[i] for i in moving), operation=operation.gradient())
        for i, change in zip(moving, changed):
            changes[i] = change
    return outs, changes


def _real(primal: Any) -> bool:
    return bool(jnp.issubdtype(primal.dtype, jnp.inexact))


def _unchanged(out: Any) -> Any:
    """A zero tangent for out, under its three names in JAX's versions."""
    if hasattr(ad_util, "p2tz"):
        return ad_util.p2tz(out)
    if hasattr(ad.Zero, "from_primal_value"):
        return ad.Zero.from_primal_value(out)
    return ad.Zero(jax.core.get_aval(out).at_least_vspace())


def _transposed(cotangents: Sequence[Any], *arrays: Any, operation: Operation) -> list[Any]:
    """The loss is the sum of all ranks' losses.  So the cotangent of a rank's array is the sum over all ranks."""
    o = operation
    live = [i for i, cotangent in enumerate(cotangents) if type(cotangent) is not ad.Zero]
    results: list[Any] = [ad.Zero(array.aval) for array in arrays]
    if not live:
        return results
    given = [cotangents[i] for i in live]
    if o.kind == ALLGATHER:
        given = bind(o.gradient(kind=REDUCESCATTER, op=Sum, rows=None), given)
        given = [g.reshape(arrays[i].aval.shape) for i, g in zip(live, given)]
    elif o.kind == REDUCESCATTER:
        size = o.process_set.size() or 1
        factor = o.prescale * o.postscale / (size if o.op == Average else 1)
        rows = tuple(arrays[i].aval.shape[0] for i in live)
        given = bind(o.gradient(kind=ALLGATHER, op=Sum, rows=rows, prescale=1.0, postscale=1.0), given)
        given = [(g * factor).astype(g.dtype) for g in given]
    elif o.kind == BROADCAST:
        given = bind(o.gradient(kind=ALLREDUCE, op=Sum), given)
        if o.root_rank != _world.rank():
            given = [jnp.zeros_like(g) for g in given]
    else:
        given = bind(o.gradient(), given)
    for i, g in zip(live, given):
        results[i] = g
    return results


ad.primitive_jvps[_p] = _tangents
ad.primitive_transposes[_p] = _transposed


# ---- vmap: the whole batch in one operation


def _batched(arrays: Sequence[Any], dims: Sequence[Any], *, operation: Operation) -> Any:
    kind = KIND_NAMES[operation.kind]
    if operation.kind == ALLREDUCE and operation.op == Adasum:
        raise NotImplementedError("allreduce with op=Adasum looks at a whole array: it cannot be batched by vmap")
    if operation.kind in (ALLREDUCE, BROADCAST):
        return _p.bind(*arrays, operation=operation), list(dims)
    moved: list[Any] = []
    out_dims: list[int | None] = []
    for array, dim in zip(arrays, dims):
        if dim is None:
            moved.append(array)
            out_dims.append(None)
            continue
        if array.ndim == 1:  # scalars
            if operation.kind != ALLGATHER:
                raise ValueError(f"{kind} needs an array with at least one dimension, not a scalar")
            moved.append(array[None])
        else:
            moved.append(jnp.moveaxis(array, dim, 1))
        out_dims.append(1)
    return _p.bind(*moved, operation=operation), out_dims


batching.primitive_batchers[_p] = _batched


# ---- compilation


def _name_of(ctx: Any, operation: Operation) -> str:
    """The program's name and a count of its operations, or the user's."""
    kind = KIND_NAMES[operation.kind]
    if operation.name is not None:
        return f"{kind}.{operation.name}"
    counts = ctx.module_context.cached_primitive_lowerings  # a dictionary that lives as long as the compilation
    count = counts[_MARK] = counts.get(_MARK, 0) + 1
    program = ir.StringAttr(ctx.module_context.module.operation.attributes["sym_name"]).value
    return f"{kind}.{program}.{count - 1}"


def _lowered(ctx: Any, *operands: Any, operation: Operation) -> Any:
    _library.load()
    o = operation
    root = o.process_set.place_of(o.root_rank) if o.kind == BROADCAST else 0
    numbers = (o.kind, o.op, root, o.process_set.process_set_id, int(o.group), float(o.prescale), float(o.postscale))
    text = " ".join([*map(repr, numbers), _name_of(ctx, o)])
    elements = [ir.RankedTensorType(operand.type).element_type for operand in operands]
    results = [ir.RankedTensorType.get(aval.shape, element) for aval, element in zip(ctx.avals_out, elements)]
    layouts = [tuple(reversed(range(aval.ndim))) for aval in ctx.avals_in]
    out_layouts = [tuple(reversed(range(aval.ndim))) for aval in ctx.avals_out]
    call = mlir.custom_call(
        _library.TARGET,
        result_types=[hlo.TokenType.get(), *results],
        operands=[ctx.tokens_in.get(_effect), *operands],
        backend_config={"operation": ir.StringAttr.get(text)},
        has_side_effect=True,
        api_version=4,
        operand_layouts=[(), *layouts],
        result_layouts=[(), *out_layouts],
    )
    token, *outs = call.results
    ctx.set_tokens_out(mlir.TokenSet({_effect: token}))
    return outs


def _elsewhere(ctx: Any, *operands: Any, operation: Operation) -> Any:
    raise NotImplementedError(
        f"hvd.jax.{KIND_NAMES[operation.kind]} inside jit works on CPUs and NVIDIA's GPUs, not on"
        f" {ctx.module_context.platforms[0]}: call it outside jit, or run the step with JAX_PLATFORMS=cpu"
    )


mlir.register_lowering(_p, _elsewhere)
for _platform in ("cpu", "cuda"):
    mlir.register_lowering(_p, _lowered, platform=_platform)
