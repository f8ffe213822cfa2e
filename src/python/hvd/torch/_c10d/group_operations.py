"""The operations of torch's process groups, over the runtime's.

Names and arguments are c10d's.  Operations that the runtime lacks are composed: gather and scatter are alltoalls in which one
rank sends or receives rows.  For reductions that the runtime lacks (bitwise ones), each rank gathers all tensors and reduces
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from math import prod
from typing import Any, Callable

import torch
import torch.distributed as dist

from hvd import _native
from hvd._native import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    REDUCESCATTER,
    Average,
    Max,
    Min,
    Product,
    Sum,
)
from hvd._runtime.requests import HOST, U8, Operation, View, devices_of
from hvd.torch._adapter import TorchAdapter
from hvd.torch._c10d.group_calls import Dense, GroupCalls, Tensors, fill, flattened, memory_of, one
from hvd.torch._c10d.group_work import GroupWork, seconds_of
from hvd.torch.ops import collectives

_Op: Any = dist.ReduceOp.RedOpType
# PREMUL_SUM: the sum of tensors that were multiplied before.
_REDUCES = {_Op.SUM: Sum, _Op.AVG: Average, _Op.MIN: Min, _Op.MAX: Max, _Op.PRODUCT: Product, _Op.PREMUL_SUM: Sum}
_FOLDS: dict[Any, Callable[..., torch.Tensor]] = {
    _Op.BAND: torch.bitwise_and,
    _Op.BOR: torch.bitwise_or,
    _Op.BXOR: torch.bitwise_xor,
}


def _reduction(opts: Any) -> Any:
    op = getattr(opts, "reduceOp", opts)
    return _Op.SUM if op is None else getattr(op, "op", op)


def _multiply(tensors: Tensors, opts: Any) -> None:
    """Multiplies each in place by PREMUL_SUM's factor: a number, or a tensor of one element."""
    factor = getattr(opts, "reduceOp", opts).__getstate__()[1]
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(factor)


# Up to this number of ranks, an allgather is one broadcast per rank, in place.  That needs no extra memory and no copy.
_MOST_BROADCASTS = 16


class GroupOperations(GroupCalls):
    """The operations of one group on one rank."""

    # ---- allreduce, reduce, broadcast

    def allreduce(self, tensors: Any, opts: Any = None) -> GroupWork:
        tensor = one(tensors, "allreduce")
        if tensor.layout is not torch.strided:
            return self._allreduce_sparse(tensor, opts)
        op = _reduction(opts)
        reduce = _REDUCES.get(op)
        if reduce is None:
            return self._folded(tensor, tensor, op, opts)
        if op == _Op.PREMUL_SUM:
            _multiply([tensor], opts)
        return self._in_place(Operation(ALLREDUCE, self._set, reduce), [tensor], [collectives.dense(tensor)], opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> GroupWork:
        op = _reduction(opts)
        reduce = _REDUCES.get(op)
        if reduce is None:
            raise NotImplementedError(f"hvd: allreduce_coalesced has no reduction {op}")
        if not tensors:
            return GroupWork(self.state, (), tensors)
        if op == _Op.PREMUL_SUM:
            _multiply(tensors, opts)
        return self._in_place(Operation(ALLREDUCE, self._set, reduce), tensors, [collectives.dense(t) for t in tensors], opts)

    def _folded(self, tensor: torch.Tensor, into: torch.Tensor, op: Any, opts: Any) -> GroupWork:
        """A reduction that the runtime lacks: all ranks' tensors are gathered, and each rank reduces them."""
        fold = _FOLDS.get(op)
        if fold is None:
            raise NotImplementedError(
                f"hvd: there is no reduction {op} (possible: {', '.join(map(str, [*_REDUCES, *_FOLDS]))})"
            )
        dense = collectives.dense(tensor)
        view = flattened(dense[1])
        handle = self._submit(Operation(ALLGATHER, self._set), view, view[1:3])

        def put(flat: torch.Tensor) -> None:
            parts = flat.view(self._size, *tensor.shape).unbind(0)
            total = parts[0]
            for part in parts[1:]:
                total = fold(total, part)
            with torch.no_grad():
                into.copy_(total)

        return self._moved(handle, view, dense, [into], opts, put)

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: Any) -> GroupWork:
        if _reduction(opts) != _Op.SUM or tensor.layout is not torch.sparse_coo:
            raise NotImplementedError("hvd: a sparse allreduce takes tensors of layout sparse_coo, and ReduceOp.SUM")
        mine = tensor.detach().coalesce()
        indices = collectives.dense(mine.indices().t().contiguous())
        values = collectives.dense(mine.values())
        views = [indices[1], values[1]]
        handles = []
        for view in views:  # ranks have their own numbers of rows
            handles.append(self._submit(Operation(ALLGATHER, self._set), view, (view[1], view[2][1:])))

        def complete() -> None:
            places = self._take(handles[0], views[0], indices[0]).view(-1, mine.sparse_dim()).t()
            rows = self._take(handles[1], views[1], values[0]).view(-1, *values[0].shape[1:])
            with torch.no_grad():
                total = torch.sparse_coo_tensor(places, rows, tensor.shape, check_invariants=False)
                tensor.copy_(total.coalesce())

        return GroupWork(self.state, handles, [tensor], (indices, values), complete, opts)

    def allreduce_sparse(self, tensors: Any, opts: Any = None) -> GroupWork:
        return self._allreduce_sparse(one(tensors, "allreduce_sparse"), opts)

    def _root(self, opts: Any, what: str) -> int:
        root: int = getattr(opts, "rootRank", 0)
        if not 0 <= root < self._size:
            raise ValueError(f"{what}: this group has no rank {root}; its ranks are 0 to {self._size - 1}")
        return root

    def reduce(self, tensors: Any, opts: Any = None) -> GroupWork:
        tensor = one(tensors, "reduce")
        if self._root(opts, "reduce") == self._place:
            return self.allreduce([tensor], opts)
        return self.allreduce([tensor.detach().clone()], opts)  # only the root's tensor may change

    def broadcast(self, tensors: Any, opts: Any = None) -> GroupWork:
        tensor = one(tensors, "broadcast")
        operation = Operation(BROADCAST, self._set, Sum, self._order[self._root(opts, "broadcast")])
        return self._in_place(operation, [tensor], [collectives.dense(tensor)], opts)

    # ---- allgather

    def allgather(self, output_tensors: list[Tensors], input_tensors: Any, opts: Any = None) -> GroupWork:
        mine = one(input_tensors, "allgather")
        into = output_tensors[0]
        if len(into) != self._size:
            raise ValueError(f"allgather: {self._size} tensors are needed to receive into, not {len(into)}")
        if any(tensor.dtype != mine.dtype for tensor in into):
            raise ValueError("allgather: tensors to receive into must have the dtype of the one that is sent")
        return self._gathered([into], [mine], opts, output_tensors)

    def _gathered(self, into: list[Tensors], inputs: Tensors, opts: Any, outputs: Any) -> GroupWork:
        """into: for each of inputs, the tensors for all ranks' parts; ranks may have different numbers of elements."""
        if not inputs:
            return GroupWork(self.state, (), outputs)
        if self._size > _MOST_BROADCASTS and not TorchAdapter.is_capturing():
            return self._gathered_anew(into, inputs, opts, outputs)
        operations, tensors = [], []
        with torch.no_grad():
            for parts, mine in zip(into, inputs):
                if parts[self._place].data_ptr() != mine.data_ptr() or not mine.is_contiguous():
                    parts[self._place].copy_(mine.reshape(parts[self._place].shape))
                for root, part in enumerate(parts):
                    operations.append(Operation(BROADCAST, self._set, Sum, self._order[root]))
                    tensors.append(part)
        return self._in_place_group(operations, tensors, outputs, opts)

    def _gathered_anew(self, into: list[Tensors], inputs: Tensors, opts: Any, outputs: Any) -> GroupWork:
        """Gathers by allgathers, and copies their results."""
        dense = [collectives.dense(tensor) for tensor in inputs]
        views = [flattened(view) for _, view in dense]
        handles = self._submit_group([Operation(ALLGATHER, self._set)] * len(views), views, [0] * len(views))

        def complete() -> None:
            for handle, view, (work, _), tensors in zip(handles, views, dense, into):
                fill([tensors[rank] for rank in self._by_set], self._take(handle, view, work), "allgather")

        return GroupWork(self.state, handles, outputs, dense, complete, opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> GroupWork:
        if output.numel() != self._size * input.numel() or output.dtype != input.dtype:
            raise ValueError(
                f"all_gather_into_tensor: {self._size} times {list(input.shape)} of {input.dtype} does not fit into "
                f"{list(output.shape)} of {output.dtype}"
            )
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        wholes = [output if output.is_contiguous() else torch.empty_like(output).contiguous() for output in outputs]
        counts = [whole.numel() // self._size for whole in wholes]
        into = [
            [whole.view(-1).narrow(0, rank * count, count) for rank in range(self._size)]
            for whole, count in zip(wholes, counts)
        ]
        work = self._gathered(into, inputs, opts, outputs)
        for output, whole in zip(outputs, wholes):
            if whole is not output:
                work.also(partial(fill, [output], whole.view(-1)))
        return work

    def allgather_coalesced(self, output_lists: list[Tensors], inputs: Tensors, opts: Any = None) -> GroupWork:
        # by rank, then by tensor
        return self._gathered([list(of_one) for of_one in zip(*output_lists)], inputs, opts, output_lists)

    # ---- reduce_scatter

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> GroupWork:
        if input.numel() != self._size * output.numel() or output.dtype != input.dtype:
            raise ValueError(
                f"reduce_scatter_tensor: {list(input.shape)} of {input.dtype} cannot be divided among {self._size} ranks as "
                f"{list(output.shape)} of {output.dtype}"
            )
        return self._scattered([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        return self._scattered(outputs, inputs, opts) if inputs else GroupWork(self.state, (), outputs)

    def _scattered(self, outputs: Tensors, inputs: Tensors, opts: Any) -> GroupWork:
        """inputs: each contains the parts of all ranks, in order."""
        reduce = _REDUCES.get(_reduction(opts))
        if reduce not in (Sum, Average):
            if len(inputs) > 1:
                raise NotImplementedError("hvd: several tensors are reduced and scattered together by SUM or AVG only")
            whole = inputs[0].detach().clone()
            return self._sliced(outputs[0], whole, self._place * outputs[0].numel(), opts)
        if not self._in_order:
            inputs = [tensor.detach().reshape(self._size, -1)[self._by_set] for tensor in inputs]
        elif _reduction(opts) == _Op.PREMUL_SUM:
            inputs = [tensor.detach().clone() for tensor in inputs]
        if _reduction(opts) == _Op.PREMUL_SUM:
            _multiply(inputs, opts)
        dense = [collectives.dense(tensor) for tensor in inputs]
        views: list[View] = [(view[0], view[1], (self._size, prod(view[2]) // self._size), view[3]) for _, view in dense]
        operation = Operation(REDUCESCATTER, self._set, reduce)
        memory = [
            memory_of(output, tensor, view, self._place * output.numel() * output.element_size())
            for output, tensor, view in zip(outputs, inputs, views)
        ]
        if len(views) == 1:
            handles = [self._submit(operation, views[0], views[0][1:3], memory[0])]
        else:
            handles = self._submit_group([operation] * len(views), views, memory)

        def complete() -> None:
            for handle, view, (work, _), output, there in zip(handles, views, dense, outputs, memory):
                if there:
                    _native.release(handle)
                    collectives._settle(devices_of((view,)))
                else:
                    fill([output], self._take(handle, view, work))

        return GroupWork(self.state, handles, outputs, dense, complete, opts)

    def _sliced(self, output: torch.Tensor, whole: torch.Tensor, at: int, opts: Any) -> GroupWork:
        """Reduces everything; this rank keeps its part."""
        work = self.allreduce([whole], opts)
        work.also(lambda: fill([output], whole.view(-1)[at : at + output.numel()]))
        work._outputs = [output]
        return work

    def reduce_scatter(self, output_tensors: Any, input_tensors: list[Tensors], opts: Any = None) -> GroupWork:
        output, parts = one(output_tensors, "reduce_scatter"), input_tensors[0]
        if len(parts) != self._size:
            raise ValueError(f"reduce_scatter: {self._size} tensors are needed, one for each rank, not {len(parts)}")
        whole = torch.cat([part.detach().reshape(-1) for part in parts])
        if all(part.numel() == output.numel() for part in parts):
            return self._scattered([output], [whole], opts)
        return self._sliced(output, whole, sum(part.numel() for part in parts[: self._place]), opts)

    # ---- all_to_all, gather, scatter

    def _exchanged(
        self, mine: Dense, rows: Sequence[int], row: int, opts: Any, outputs: Any, put: Any, into: torch.Tensor | None = None
    ) -> GroupWork:
        """rows: number for each rank; row: elements of one.  into: has room for the received rows, if their number is as
        expected.
        """
        if not self._in_order:
            parts = torch.split(mine[0].reshape(-1), [count * row for count in rows])
            mine, into = collectives.dense(torch.cat([parts[rank] for rank in self._by_set])), None
            rows = [rows[rank] for rank in self._by_set]
        address, code, _, device = flattened(mine[1])
        given = (address, code, (sum(rows), row), device)
        memory = 0 if into is None else memory_of(into, mine[0], given)
        handle = self._submit(Operation(ALLTOALL, self._set), given, (code, row), memory, tuple(rows))
        return self._moved(handle, given, mine, outputs, opts, put, memory, 0 if self._in_order else row)

    def all_to_all_single(
        self, output: torch.Tensor, input: torch.Tensor, output_splits: Any, input_splits: Any, opts: Any = None
    ) -> GroupWork:
        for tensor, splits, what in ((input, input_splits, "input"), (output, output_splits, "output")):
            have = tensor.shape[0] if tensor.dim() else 0
            if splits and sum(splits) != have:
                raise RuntimeError(f"all_to_all_single: the {what} split sizes add up to {sum(splits)}, and it has {have} rows")
            if not splits and have % self._size:
                raise RuntimeError(f"all_to_all_single: {what} of {have} rows does not divide equally among {self._size} ranks")
        rows = list(input_splits) or [input.shape[0] // self._size] * self._size

        put = partial(fill, [output], what="all_to_all_single")
        return self._exchanged(collectives.dense(input), rows, prod(input.shape[1:]), opts, [output], put, output)

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> GroupWork:
        if len(output_tensors) != self._size or len(input_tensors) != self._size:
            raise ValueError(
                f"all_to_all: {self._size} tensors are needed to send and to receive into, not {len(input_tensors)} and "
                f"{len(output_tensors)}"
            )
        whole = torch.cat([tensor.detach().reshape(-1) for tensor in input_tensors])
        rows = [tensor.numel() for tensor in input_tensors]
        return self._exchanged(
            collectives.dense(whole), rows, 1, opts, output_tensors, partial(fill, output_tensors, what="all_to_all")
        )

    def gather(self, output_tensors: list[Tensors], input_tensors: Any, opts: Any = None) -> GroupWork:
        mine, root = one(input_tensors, "gather"), self._root(opts, "gather")
        rows = [0] * self._size
        rows[root] = mine.numel()
        into = output_tensors[0] if root == self._place else []
        if root == self._place and len(into) != self._size:
            raise ValueError(f"gather: {self._size} tensors are needed to receive into, not {len(into)}")
        return self._exchanged(collectives.dense(mine), rows, 1, opts, output_tensors, partial(fill, into, what="gather"))

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> GroupWork:
        rows, root = [0] * self._size, self._root(opts, "gather")
        rows[root] = input.numel()
        into = [output] if root == self._place else []
        return self._exchanged(collectives.dense(input), rows, 1, opts, into, partial(fill, into, what="gather"))

    def scatter(self, output_tensors: Any, input_tensors: list[Tensors], opts: Any = None) -> GroupWork:
        output, root = one(output_tensors, "scatter"), self._root(opts, "scatter")
        rows = [0] * self._size
        whole = output.new_empty(0)
        if root == self._place:
            parts = input_tensors[0]
            if len(parts) != self._size:
                raise ValueError(f"scatter: {self._size} tensors are needed, one for each rank, not {len(parts)}")
            whole = torch.cat([part.detach().reshape(-1) for part in parts])
            rows = [part.numel() for part in parts]
        return self._exchanged(collectives.dense(whole), rows, 1, opts, [output], partial(fill, [output], what="scatter"))

    # ---- barriers

    def barrier(self, opts: Any = None) -> GroupWork:
        handle = self._submit(Operation(BARRIER, self._set), (0, U8, (0,), HOST), None)
        return GroupWork(self.state, [handle], [], opts=opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier after which rank 0 can name missing ranks.  RuntimeError, with gloo's text."""
        limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=seconds_of(timeout) or self.state.seconds)
        milliseconds = f"{limit.total_seconds() * 1000:.0f} ms"
        self._barriers += 1
        front = f"barrier/{self._barriers}/"
        if self._place:
            self._pass_barrier(front, limit)
            return
        late: list[int] = []
        for rank in range(1, self._size):
            try:
                self._store.wait([f"{front}{rank}"], limit if limit and not late else timedelta(milliseconds=1))
            except Exception:
                late.append(rank)
                if not wait_all_ranks:
                    break
        who = "Rank" if len(late) == 1 else "Ranks"
        text = f"[Rank 0]: {who} {', '.join(map(str, late))} failed to pass monitoredBarrier in {milliseconds}"
        self._store.set(front + "all", text if late else "")
        if late:
            raise RuntimeError(text if limit else f"Rank 0 timed out in monitoredBarrier after {milliseconds}; {text}")

    def _pass_barrier(self, front: str, limit: timedelta) -> None:
        """The part of a rank other than 0."""
        self._store.set(f"{front}{self._place}", "")
        cause = None
        try:
            self._store.wait([front + "all"], limit)
            said = self._store.get(front + "all").decode()
        except Exception as error:
            cause, said = error, str(error)
        if said:
            raise RuntimeError(
                f"Rank {self._place} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                f"from rank 0: {said}"
            ) from cause

    # ---- send, recv

    def send(self, tensors: Any, dst_rank: int, tag: int = 0) -> GroupWork:
        return self._messages.send(one(tensors, "send"), dst_rank, tag)

    def recv(self, tensors: Any, src_rank: int, tag: int = 0) -> GroupWork:
        return self._messages.recv(one(tensors, "recv"), src_rank, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> GroupWork:
        return self._messages.recv_any(one(tensors, "recv"), tag)

    # older names
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    recvAnysource = recv_anysource
