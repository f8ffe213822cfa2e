# mypy: disable-error-code="no-any-return"
"""The blocking operations inside torch.compile: operators of torch, which Dynamo puts into its graphs.

Dynamo traces the functions of this file in place of those of hvd.torch.ops (_torch_compile.py).  Each function calls an
operator torch.ops.hvd.*.  The operator's kernel calls the plain operation; its fake kernel gives the result's shape.  The
operators have an ordered effect.  So the graph keeps them in the program's order, even if a rank does not use a result.  Plain
calls never run this code.  The first trace loads this file.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable

import torch

from hvd._native import Average, Max, Min, Product
from hvd._runtime.arguments import reduce_op, scatter_op
from hvd.process_sets import ProcessSet, global_process_set
from hvd.process_sets import numbered as _set
from hvd.torch import ops as _ops
from hvd.torch.compression import Compression
from hvd.torch.ops import collectives

Tensor = torch.Tensor
_library: Any = torch.library.Library("hvd", "FRAGMENT")  # type: ignore[no-untyped-call]
_ORDERED: Any = torch._library.effects.EffectType.ORDERED
_hvd: Any = torch.ops.hvd


def _number(process_set: ProcessSet) -> int:
    return -1 if process_set.process_set_id is None else process_set.process_set_id


def _define(name: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
    _library.define(f"{name}{schema}")
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"hvd::{name}", fake, lib=_library)
    _library._register_effectful_op(f"hvd::{name}", _ORDERED)


def _derive(name: str, keep: Callable[..., None], backward: Callable[..., Any]) -> None:
    torch.library.register_autograd(f"hvd::{name}", backward, setup_context=keep, lib=_library)


def _like(tensor: Tensor) -> Tensor:
    return tensor.new_empty(tensor.shape)  # contiguous, as the operations' results are


def _likes(tensors: list[Tensor], *_: Any) -> list[Tensor]:
    return [_like(tensor) for tensor in tensors]


def _with_rows(tensors: list[Tensor], rows: list[Any], *_: Any) -> list[Tensor]:
    return [tensor.new_empty((count, *tensor.shape[1:])) for tensor, count in zip(tensors, rows)]


def _rows(tensors: list[Tensor]) -> list[Any]:
    return [tensor.shape[0] if tensor.dim() else 1 for tensor in tensors]


# ---- allreduce.  together: the tensors are a group


def _allreduce(
    tensors: list[Tensor], together: bool, name: str | None, op: int, before: float, after: float, number: int
) -> Any:
    call = (op, before, after, _set(number))
    if together:
        return collectives.grouped_allreduce(tensors, None, name, *call)
    return [collectives.allreduce(tensors[0], None, name, *call)]


def _allreduce_gradient(
    grads: list[Tensor], tensors: list[Tensor], together: bool, name: str | None, *call: Any
) -> list[Tensor]:
    ctx = SimpleNamespace(name=name, call=(*call[:-1], _set(call[-1])), saved_tensors=tensors)
    if together:
        return list(_ops._GroupedAllreduce.backward(ctx, *grads)[2:])
    return [_ops._Allreduce.backward(ctx, grads[0])[0]]


def _keep_allreduce(ctx: Any, inputs: Any, output: Any) -> None:
    tensors, *ctx.call = inputs
    ctx.save_for_backward(*(tensors if ctx.call[2] in (Min, Max, Product) else ()))


_CALL = "bool together, str? name, int op, float before, float after, int number"
_define("allreduce", f"(Tensor[] tensors, {_CALL}) -> Tensor[]", _allreduce, _likes)
_define("allreduce_gradient", f"(Tensor[] grads, Tensor[] tensors, {_CALL}) -> Tensor[]", _allreduce_gradient, _likes)
_derive(
    "allreduce",
    _keep_allreduce,
    lambda ctx, grads: (_hvd.allreduce_gradient(grads, list(ctx.saved_tensors), *ctx.call), *(None,) * 6),
)


# ---- allgather


def _allgather(tensors: list[Tensor], together: bool, name: str | None, number: int) -> list[Tensor]:
    if together:
        return collectives.grouped_allgather(tensors, name, _set(number))
    return [collectives.allgather(tensors[0], name, _set(number))]


def _gathered(tensors: list[Tensor], *_: Any) -> list[Tensor]:
    return _with_rows(tensors, [torch.library.get_ctx().new_dynamic_size() for _ in tensors])


def _allgather_gradient(grads: list[Tensor], rows: list[int], name: str | None, number: int) -> list[Tensor]:
    ctx = SimpleNamespace(rows=rows, name=name, process_set=_set(number))
    return [part.clone() for part in _ops._gather_gradient(ctx, grads)]


def _keep_allgather(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.rows, ctx.name, ctx.number = _rows(inputs[0]), inputs[2], inputs[3]


_define("allgather", "(Tensor[] tensors, bool together, str? name, int number) -> Tensor[]", _allgather, _gathered)
_define(
    "allgather_gradient",
    "(Tensor[] grads, SymInt[] rows, str? name, int number) -> Tensor[]",
    _allgather_gradient,
    _with_rows,
)
_derive(
    "allgather",
    _keep_allgather,
    lambda ctx, grads: (_hvd.allgather_gradient(grads, ctx.rows, ctx.name, ctx.number), None, None, None),
)


# ---- broadcast


def _broadcast(tensor: Tensor, root: int, name: str | None, number: int) -> Tensor:
    return collectives.broadcast(tensor, root, name, _set(number))


def _broadcast_gradient(grad: Tensor, root: int, name: str | None, number: int) -> Tensor:
    ctx = SimpleNamespace(root_rank=root, name=name, process_set=_set(number))
    return _ops._Broadcast.backward(ctx, grad)[0]


def _keep_broadcast(ctx: Any, inputs: Any, output: Any) -> None:
    _, *ctx.call = inputs


_define("broadcast", "(Tensor tensor, int root, str? name, int number) -> Tensor", _broadcast, lambda t, *_: _like(t))
_define(
    "broadcast_gradient",
    "(Tensor grad, int root, str? name, int number) -> Tensor",
    _broadcast_gradient,
    lambda t, *_: _like(t),
)
_derive("broadcast", _keep_broadcast, lambda ctx, grad: (_hvd.broadcast_gradient(grad, *ctx.call), None, None, None))


# ---- alltoall.  received: rows from each rank.  Returns one list: Inductor (2.15) mistakes the size in a pair of results


def _alltoall(tensor: Tensor, splits: Tensor | None, name: str | None, number: int, ranks: int) -> list[Tensor]:
    return list(collectives.synchronize(collectives.alltoall_async(tensor, splits, name, _set(number))))


def _exchanged(tensor: Tensor, splits: Tensor | None, name: str | None, number: int, ranks: int) -> list[Tensor]:
    received = torch.empty(ranks, dtype=torch.int32) if splits is None else splits.new_empty(ranks)
    return [*_gathered([tensor]), received]


def _alltoall_gradient(grad: Tensor, received: Tensor, rows: int, name: str | None, number: int) -> Tensor:
    ctx = SimpleNamespace(received=received, name=name, process_set=_set(number))
    return _ops._Alltoall.backward(ctx, grad)[0]


def _keep_alltoall(ctx: Any, inputs: Any, output: Any) -> None:
    tensor, _, ctx.name, ctx.number, _ = inputs
    ctx.rows = tensor.shape[0]
    ctx.save_for_backward(output[1])


_define(
    "alltoall",
    "(Tensor tensor, Tensor? splits, str? name, int number, int ranks) -> Tensor[]",
    _alltoall,
    _exchanged,
)
_define(
    "alltoall_gradient",
    "(Tensor grad, Tensor received, SymInt rows, str? name, int number) -> Tensor",
    _alltoall_gradient,
    lambda grad, received, rows, *_: grad.new_empty((rows, *grad.shape[1:])),
)
_derive(
    "alltoall",
    _keep_alltoall,
    lambda ctx, grads: (_hvd.alltoall_gradient(grads[0], *ctx.saved_tensors, ctx.rows, ctx.name, ctx.number), *(None,) * 4),
)


# ---- reducescatter.  place, ranks: this rank's in the process set


def _reducescatter(
    tensors: list[Tensor], together: bool, name: str | None, op: int, number: int, before: float, after: float, *_: Any
) -> list[Tensor]:
    call = (op, _set(number), before, after)
    if together:
        return collectives.grouped_reducescatter(tensors, name, *call)
    return [collectives.reducescatter(tensors[0], name, *call)]


def _scattered(tensors: list[Tensor], *call: Any) -> list[Tensor]:
    place, ranks = call[-2:]
    return _with_rows(tensors, [(tensor.shape[0] + ranks - 1 - place) // ranks for tensor in tensors])


def _reducescatter_gradient(
    grads: list[Tensor], rows: list[int], name: str | None, op: int, number: int, before: float, after: float
) -> list[Tensor]:
    return _ops._scatter_gradients(SimpleNamespace(name=name, call=(op, _set(number), before, after)), grads)


def _keep_reducescatter(ctx: Any, inputs: Any, output: Any) -> None:
    tensors, _, *ctx.call = inputs[:-2]
    ctx.rows = _rows(tensors)


_CALL = "str? name, int op, int number, float before, float after"
_define(
    "reducescatter",
    f"(Tensor[] tensors, bool together, {_CALL}, int place, int ranks) -> Tensor[]",
    _reducescatter,
    _scattered,
)
_define(
    "reducescatter_gradient",
    f"(Tensor[] grads, SymInt[] rows, {_CALL}) -> Tensor[]",
    _reducescatter_gradient,
    _with_rows,
)
_derive(
    "reducescatter",
    _keep_reducescatter,
    lambda ctx, grads: (_hvd.reducescatter_gradient(grads, ctx.rows, *ctx.call), *(None,) * 8),
)


# ---- the traced functions, with the arguments of those of the same names in hvd.torch.ops


def grouped_allreduce(
    tensors: Any, average: Any = None, name: Any = None, compression: Any = Compression.none, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
    together: bool = True,
) -> list[Tensor]:  # fmt: skip
    small, contexts = [], []
    for tensor in tensors:
        made, context = compression.compress(tensor)
        small.append(made)
        contexts.append(context)
    call = (reduce_op(op, average), float(prescale_factor), float(postscale_factor), _number(process_set))
    outs = _hvd.allreduce(small, together, name, *call)
    return [compression.decompress(out, context) for out, context in zip(outs, contexts)]


def allreduce(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    kwargs["together"] = False
    return grouped_allreduce([tensor], *args, **kwargs)[0]


def grouped_allreduce_(
    operations: Any, tensors: Any, average: Any = None, name: Any = None, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
    together: bool = True,
) -> list[Tensor]:  # fmt: skip
    tensors = list(tensors)
    call = (reduce_op(op, average), float(prescale_factor), float(postscale_factor), _number(process_set))
    with torch.no_grad():
        for tensor, reduced in zip(tensors, _hvd.allreduce(tensors, together, name, *call)):
            tensor.copy_(reduced)
    return tensors


def allreduce_(operations: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    kwargs["together"] = False
    return grouped_allreduce_(operations, [tensor], *args, **kwargs)[0]


def allgather(tensor: Tensor, name: Any = None, process_set: ProcessSet = global_process_set) -> Tensor:
    return _hvd.allgather([tensor], False, name, _number(process_set))[0]


def grouped_allgather(tensors: Any, name: Any = None, process_set: ProcessSet = global_process_set) -> list[Tensor]:
    return _hvd.allgather(list(tensors), True, name, _number(process_set))


def broadcast(tensor: Tensor, root_rank: int, name: Any = None, process_set: ProcessSet = global_process_set) -> Tensor:
    return _hvd.broadcast(tensor, root_rank, name, _number(process_set))


def broadcast_(
    operations: Any, tensor: Tensor, root_rank: int, name: Any = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    with torch.no_grad():
        return tensor.copy_(_hvd.broadcast(tensor, root_rank, name, _number(process_set)))


def alltoall(tensor: Tensor, splits: Any = None, name: Any = None, process_set: ProcessSet = global_process_set) -> Any:
    rows = splits if splits is None or isinstance(splits, Tensor) else torch.tensor(splits, dtype=torch.int32)
    out, received = _hvd.alltoall(tensor, rows, name, _number(process_set), process_set.size() or 1)
    return out if splits is None else (out, received)


def grouped_reducescatter(
    tensors: Any, name: Any = None, compression: Any = Compression.none, op: int = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    together: bool = True,
) -> list[Tensor]:  # fmt: skip
    small, contexts = [], []
    for tensor in tensors:
        made, context = compression.compress(tensor)
        small.append(made)
        contexts.append(context)
    call = (scatter_op(op), _number(process_set), float(prescale_factor), float(postscale_factor))
    place = (process_set.rank() or 0, process_set.size() or 1)
    outs = _hvd.reducescatter(small, together, name, *call, *place)
    return [compression.decompress(out, context) for out, context in zip(outs, contexts)]


def reducescatter(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    kwargs["together"] = False
    return grouped_reducescatter([tensor], *args, **kwargs)[0]
