# mypy: disable-error-code="no-any-return, arg-type"
"""The operations on torch tensors: the common ones of hvd/_runtime/collectives.py, and their gradients.

The blocking operations that return a new tensor are differentiable.  A loss is the sum over ranks of each rank's own loss.
As in Horovod, the gradients of allgather and broadcast are averaged over the ranks instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch

from hvd._native import Adasum, Average, Max, Min, Product, Sum
from hvd._runtime import world as _world
from hvd._runtime.arguments import reduce_op
from hvd._runtime.collectives import Collectives
from hvd.process_sets import ProcessSet, global_process_set
from hvd.torch._adapter import TorchAdapter
from hvd.torch.compression import Compression, Compressor

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]

collectives: Collectives[torch.Tensor] = Collectives(TorchAdapter())

allreduce_ = collectives.allreduce_
allreduce_async = collectives.allreduce_async
allreduce_async_ = collectives.allreduce_async_
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_allreduce_async_ = collectives.grouped_allreduce_async_
allgather_async = collectives.allgather_async
grouped_allgather_async = collectives.grouped_allgather_async
broadcast_ = collectives.broadcast_
broadcast_async = collectives.broadcast_async
broadcast_async_ = collectives.broadcast_async_
alltoall_async = collectives.alltoall_async
reducescatter_async = collectives.reducescatter_async
grouped_reducescatter_async = collectives.grouped_reducescatter_async
join = collectives.join
barrier = collectives.barrier
poll = collectives.poll
synchronize = collectives.synchronize


def _gradient_name(name: str | None) -> str | None:
    return None if name is None else name + ".gradient"


def _differentiable(tensor: torch.Tensor) -> bool:
    return bool(getattr(tensor, "requires_grad", False)) and torch.is_grad_enabled()  # non-tensors are refused later


def _extremum_gradient(
    tensor: torch.Tensor, reduced: torch.Tensor, total: torch.Tensor, name: str | None, process_set: ProcessSet
) -> torch.Tensor:
    """Min, Max: the gradient goes to the ranks with the extremum, in equal parts."""
    holds = (tensor == reduced).to(total.dtype)
    holders = collectives.allreduce(holds, None, name and name + ".holders", Sum, process_set=process_set)
    return total * holds / holders


def _product_gradient(tensor: torch.Tensor, total: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    """Product: the gradient times the product of the other ranks' elements, also right for zeros."""
    zero = tensor == 0
    zeros = collectives.allreduce(zero.to(torch.int32), None, name and name + ".zeros", Sum, process_set=process_set)
    ones = torch.where(zero, torch.ones_like(tensor), tensor)
    product = collectives.allreduce(ones, None, name and name + ".others", Product, process_set=process_set)
    others_have_zero = zeros > zero.to(torch.int32)
    return total * torch.where(others_have_zero, torch.zeros_like(tensor), product / ones).conj()


def _reduce_gradient(ctx: Any, tensor: Any, reduced: Any, grad: torch.Tensor, name: str | None) -> torch.Tensor:
    op, before, after, process_set = ctx.call
    grad = grad.contiguous()
    if op in (Average, Sum, Adasum):
        return allreduce(grad, None, name, op=op, prescale_factor=before, postscale_factor=after, process_set=process_set)
    total = collectives.allreduce(grad, None, name, Sum, process_set=process_set) * after
    if op == Product:
        ranks = process_set.size() or 1
        return _product_gradient(tensor, total, name, process_set) * before**ranks
    if before < 0:  # x is least where -x is greatest
        op = Min if op == Max else Max
    scaled = collectives.allreduce(tensor, None, name and name + ".extremum", op, process_set=process_set)
    return _extremum_gradient(tensor, scaled, total, name, process_set) * before


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, *call: Any) -> torch.Tensor:  # type: ignore[override]
        ctx.name, ctx.call = name, call
        op, before, after, process_set = call
        if op in (Min, Max, Product):
            ctx.save_for_backward(tensor)
        return collectives.allreduce(tensor, None, name, op, before, after, process_set)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        tensor = ctx.saved_tensors[0] if ctx.saved_tensors else None
        gradient = _reduce_gradient(ctx, tensor, None, grad, _gradient_name(ctx.name))
        return (gradient,) + (None,) * 5


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, call: Any, *tensors: torch.Tensor) -> Any:  # type: ignore[override]
        ctx.name, ctx.call = name, call
        op, before, after, process_set = call
        if op in (Min, Max, Product):
            ctx.save_for_backward(*tensors)
        return tuple(collectives.grouped_allreduce(tensors, None, name, op, before, after, process_set))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:  # type: ignore[override]
        op, before, after, process_set = ctx.call
        name = _gradient_name(ctx.name)
        if op in (Average, Sum, Adasum):
            dense = [grad.contiguous() for grad in grads]
            return (None, None, *collectives.grouped_allreduce(dense, None, name, op, before, after, process_set))
        return (
            None,
            None,
            *(
                _reduce_gradient(ctx, tensor, None, grad, name and f"{name}.{index}")
                for index, (tensor, grad) in enumerate(zip(ctx.saved_tensors, grads))
            ),
        )


def _gather_gradient(ctx: Any, grads: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """This rank's rows of the averaged gradients."""
    process_set, name = ctx.process_set, _gradient_name(ctx.name)
    dense = [grad.contiguous() for grad in grads]
    averaged = collectives.grouped_allreduce(dense, None, name, Average, process_set=process_set)
    rows = collectives.allgather(torch.tensor([ctx.rows]), name and name + ".rows", process_set)
    first = rows[: process_set.rank() or 0].sum(0).tolist()
    return [grad.narrow(0, start, count) for grad, start, count in zip(averaged, first, ctx.rows)]


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> Any:  # type: ignore[override]
        ctx.rows, ctx.name, ctx.process_set = [tensor.shape[0] if tensor.dim() else 1], name, process_set
        return collectives.allgather(tensor, name, process_set)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return _gather_gradient(ctx, [grad])[0], None, None


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:  # type: ignore[override]
        ctx.rows, ctx.name, ctx.process_set = [t.shape[0] if t.dim() else 1 for t in tensors], name, process_set
        return tuple(collectives.grouped_allgather(tensors, name, process_set))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:  # type: ignore[override]
        return (None, None, *_gather_gradient(ctx, grads))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:  # type: ignore[override]
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, name, process_set
        return collectives.broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        name = _gradient_name(ctx.name)
        averaged = collectives.allreduce(grad.contiguous(), None, name, Average, process_set=ctx.process_set)
        if _world.rank() != ctx.root_rank:
            averaged = torch.zeros_like(averaged)
        return averaged, None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:  # type: ignore[override]
        handle = collectives.alltoall_async(tensor, splits, name, process_set)
        out, ctx.received = collectives.synchronize(handle)
        ctx.name, ctx.process_set = name, process_set
        ctx.mark_non_differentiable(ctx.received)
        return out, ctx.received

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:  # type: ignore[override]
        gradient, _ = alltoall(grad.contiguous(), ctx.received, _gradient_name(ctx.name), ctx.process_set)
        return gradient, None, None, None


def _scatter_gradients(ctx: Any, grads: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Every rank's rows of the gradient; for Sum times the number of ranks, as in Horovod."""
    op, process_set, before, after = ctx.call
    factor = before * after * ((process_set.size() or 1) if op == Sum else 1)
    scaled = [(grad * factor if factor != 1 else grad).contiguous() for grad in grads]
    return grouped_allgather(scaled, _gradient_name(ctx.name), process_set)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, *call: Any) -> torch.Tensor:  # type: ignore[override]
        ctx.name, ctx.call = name, call
        return collectives.reducescatter(tensor, name, *call)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return (_scatter_gradients(ctx, [grad])[0],) + (None,) * 5


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, call: Any, *tensors: torch.Tensor) -> Any:  # type: ignore[override]
        ctx.name, ctx.call = name, call
        return tuple(collectives.grouped_reducescatter(tensors, name, *call))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:  # type: ignore[override]
        return (None, None, *_scatter_gradients(ctx, grads))


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The reduction of tensor over all ranks, as a new tensor of the same shape and dtype.  Differentiable.

    op: Average (default), Sum, Min, Max, Product; Average of integers truncates.
    Errors: ValueError for a wrong argument; HorovodInternalError when ranks disagree or a peer is lost.
    """
    reduce = reduce_op(op, average)
    if compression is not Compression.none:
        small, ctx = compression.compress(tensor)
        reduced = allreduce(small, None, name, Compression.none, reduce, prescale_factor, postscale_factor, process_set)
        return compression.decompress(reduced, ctx)
    if _differentiable(tensor):
        return _Allreduce.apply(tensor, name, reduce, prescale_factor, postscale_factor, process_set)
    return collectives.allreduce(tensor, None, name, reduce, prescale_factor, postscale_factor, process_set)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """allreduce of several tensors that become ready and run together.  Differentiable."""
    reduce = reduce_op(op, average)
    small, contexts = zip(*(compression.compress(tensor) for tensor in tensors)) if tensors else ((), ())
    call = (reduce, prescale_factor, postscale_factor, process_set)
    if any(map(_differentiable, small)):
        reduced = _GroupedAllreduce.apply(name, call, *small)
    else:
        reduced = collectives.grouped_allreduce(small, None, name, *call)
    return [compression.decompress(tensor, ctx) for tensor, ctx in zip(reduced, contexts)]


def allgather(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Concatenates all ranks' tensors: [sum of dim 0, ...].  Only dim 0 may differ.  Differentiable."""
    if _differentiable(tensor):
        return _Allgather.apply(tensor, name, process_set)
    return collectives.allgather(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """allgather of several tensors that become ready and run together.  Differentiable."""
    if any(map(_differentiable, tensors)):
        return list(_GroupedAllgather.apply(name, process_set, *tensors))
    return collectives.grouped_allgather(tensors, name, process_set)


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """A new tensor with root_rank's values.  The same shape and dtype on all ranks.  Differentiable."""
    if _differentiable(tensor):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return collectives.broadcast(tensor, root_rank, name, process_set)


def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends splits[r] rows to rank r, in order, and returns the rows that all ranks sent here.  Without splits, sends equal
    parts.

    Returns the tensor, [sum of received rows, ...]; with splits, a pair of it and the received splits, [size].
    splits: 1-D integers on the host.  Differentiable.
    """
    if not _differentiable(tensor):
        return collectives.alltoall(tensor, splits, name, process_set)
    out, received = _Alltoall.apply(tensor, splits, name, process_set)
    return out if splits is None else (out, received)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """The sum (or average) of tensor over all ranks, divided among them: [rows of this rank, ...].  Differentiable.

    The first (rows mod size) ranks get one row more.
    """
    small, ctx = compression.compress(tensor)
    call = (op, process_set, prescale_factor, postscale_factor)
    if _differentiable(small):
        return compression.decompress(_Reducescatter.apply(small, name, *call), ctx)
    return compression.decompress(collectives.reducescatter(small, name, *call), ctx)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """reducescatter of several tensors that become ready and run together.  Differentiable."""
    small, contexts = zip(*(compression.compress(tensor) for tensor in tensors)) if tensors else ((), ())
    call = (op, process_set, prescale_factor, postscale_factor)
    if any(map(_differentiable, small)):
        outs = _GroupedReducescatter.apply(name, call, *small)
    else:
        outs = collectives.grouped_reducescatter(small, name, *call)
    return [compression.decompress(out, ctx) for out, ctx in zip(outs, contexts)]


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Sums (or averages) sparse COO tensors by gathering their indices and values: [nnz of all ranks].

    Returns a callable that waits and returns the sparse result; synchronize() accepts it too.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be reduced by Sum and Average only")
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        raise ValueError("a sparse COO tensor is needed (see allreduce)")
    coalesced = tensor.coalesce()
    indices = coalesced.indices().t().contiguous()  # [nnz, sparse dims]
    values = coalesced.values()
    parts = [indices, values]
    # Not grouped: a rank without any entries sends empty tensors like the others.
    handles = [
        allgather_async(part, name and f"{name}.{what}", process_set) for part, what in zip(parts, ("indices", "values"))
    ]

    def wait() -> torch.Tensor:
        all_indices, all_values = [synchronize(handle) for handle in handles]
        if op == Average:
            all_values = all_values / (process_set.size() or 1)
        return torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.shape, check_invariants=False).coalesce()

    return wait
