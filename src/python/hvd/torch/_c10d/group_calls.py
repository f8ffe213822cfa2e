"""Submits a process group's calls to the runtime, and returns their results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import prod
from typing import Any, Callable, Union

import torch

from hvd import _native
from hvd._runtime.requests import HOST, Operation, Request, View, devices_of, gpu_of, item_bytes_of
from hvd.torch._c10d.call_names import CallName
from hvd.torch._c10d.group_sets import GroupSets
from hvd.torch._c10d.group_work import GroupState, GroupWork, names_of_new, under_way
from hvd.torch._c10d.point_to_point import PointToPoint
from hvd.torch.ops import collectives

Tensors = list[torch.Tensor]
Dense = tuple[torch.Tensor, View]


def one(tensors: Any, what: str) -> torch.Tensor:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{what}: one tensor is needed, not {len(tensors)}")
    found: torch.Tensor = tensors[0]
    return found


def flattened(view: View) -> View:
    """The same memory, as rows of one element."""
    return view[0], view[1], (prod(view[2]),), view[3]


def fill(into: Sequence[torch.Tensor], flat: torch.Tensor, what: str = "operation") -> None:
    """Copies consecutive parts of flat into tensors of these sizes.  RuntimeError if they do not fit."""
    room = sum(tensor.numel() for tensor in into)
    if flat.numel() != room:
        raise RuntimeError(f"{what}: {flat.numel()} elements came, and there is room for {room}")
    at = 0
    with torch.no_grad():
        for tensor in into:
            count = tensor.numel()
            tensor.copy_(flat[at : at + count].view(tensor.shape))
            at += count


Out = Union[int, tuple[int, int]]


def memory_of(output: torch.Tensor, input: torch.Tensor, given: View, own: int = -1) -> Out:
    """Memory for the runtime's result: address and bytes of output.  0: output is unusable, and the result is copied.

    given: view of input.  own: the offset, in bytes, at which output may overlap input; elsewhere they must not overlap.
    """
    if output.dtype != input.dtype or output.device != input.device:
        return 0
    there = collectives._view(output)  # unchanged; on the device of the runtime's result
    if there is None or gpu_of(there) != gpu_of(given):
        return 0
    begin, bytes = there[0], output.numel() * output.element_size()
    first, last = given[0], given[0] + prod(given[2]) * item_bytes_of(given)
    apart = begin + bytes <= first or begin >= last
    return (begin, bytes) if apart or begin == first + own else 0


class GroupCalls:
    """One group on this rank.  One thread at a time, in the same order on all ranks of the group; also callbacks of futures."""

    state: GroupState
    _set: int  # number of the process set
    _ranks: tuple[int, ...]  # of the world
    _place: int  # this rank's place among _ranks
    _order: list[int]  # by place in the group: the place in the process set, which sorts its ranks
    _by_set: list[int]  # the inverse: by place in the process set, the place in the group
    _in_order: bool  # _order and _by_set are 0, 1, 2, …
    _size: int
    _sets: GroupSets
    _store: Any
    _messages: PointToPoint
    _calls: int = 0
    _barriers: int = 0

    def _next_name(self, operation: Operation, agreed: Any) -> CallName:
        self._check_group()
        name = self.state.names().next((operation, agreed))
        self._calls += 1
        return name

    def _check_group(self) -> None:
        if self._sets.left:
            self._sets.refuse_if_left(self.state.label)
        if self.state.left is not None:
            self.state.refuse()

    def _begun(self, name: CallName, views: Sequence[View], submit: Callable[[], list[int]]) -> list[int]:
        """Submits a call, or leaves it to a thread if an earlier one of this name is pending."""
        before = under_way.get(name.handle)
        if before is None or before.has_arrived():
            handles = submit()
        elif all(view[3] == HOST for view in views):

            def submit_late() -> list[int]:
                self._check_group()
                return submit()

            handles = self.state.late.add(before, submit_late, len(views))
        else:  # a GPU's inputs belong to the caller's stream
            before.wait()
            handles = submit()
        name.handle = handles[0]
        names_of_new[handles[0]] = name.text
        return handles

    def _submit(self, operation: Operation, view: View, agreed: Any, out: Out = 0, splits: Any = None) -> int:
        """agreed: further values that must be equal on all ranks, besides operation."""
        name = self._next_name(operation, agreed)
        request = (operation, name.text, view, out, splits)
        return self._begun(name, (view,), lambda: [_native.submit(request)])[0]  # type: ignore[arg-type]

    def _submit_group(self, operations: list[Operation], views: list[View], outs: Sequence[Out]) -> list[int]:
        """Submits several tensors that run together."""
        agreed = tuple((view[1], view[2]) for view in views)
        name = self._next_name(operations[0], agreed)
        # The first has the name itself, so that it meets a single operation if ranks disagree.
        texts = [name.text, *(b"%s.%d" % (name.text, index) for index in range(1, len(views)))]
        requests = [Request(operation, text, view, out) for operation, text, view, out in zip(operations, texts, views, outs)]
        return self._begun(name, views, lambda: _native.submit_many(requests, True))

    def _take(self, handle: int, view: View, like: torch.Tensor) -> torch.Tensor:
        """The result of an operation that has ended: [elements], of like's dtype."""
        collectives._settle(devices_of((view,)))
        capsule, shape = _native.take(handle, item_bytes_of(view), gpu_of(view))
        return collectives._adapter.adopt(capsule, (prod(shape),), like)

    def _in_place(self, operation: Operation, tensors: Tensors, dense: list[Dense], opts: Any) -> GroupWork:
        """Submits operations whose results replace their inputs."""
        if len(dense) == 1 and dense[0][0] is tensors[0] and dense[0][1][3] == HOST:  # the most frequent case
            view = dense[0][1]
            handle = self._submit(operation, view, view[1:3], view[0])
            return GroupWork(self.state, (handle,), tensors, None, None, opts)
        return self._in_place_group([operation] * len(tensors), tensors, tensors, opts, dense)

    def _in_place_group(
        self, operations: list[Operation], tensors: Tensors, outputs: Any, opts: Any, dense: list[Dense] | None = None
    ) -> GroupWork:
        """Submits several that run together.  dense: dense forms of tensors, if known."""
        if dense is None:
            dense = [collectives.dense(tensor) for tensor in tensors]
        if len(dense) == 1:
            view = dense[0][1]
            handles = [self._submit(operations[0], view, view[1:3], view[0])]
        else:
            views = [view for _, view in dense]
            handles = self._submit_group(operations, views, [view[0] for view in views])
        copied = [(tensor, work) for tensor, (work, _) in zip(tensors, dense) if work is not tensor]

        def complete() -> None:
            for handle in handles:
                _native.release(handle)
            collectives._settle(devices_of([view for _, view in dense]))
            with torch.no_grad():
                for tensor, work in copied:
                    tensor.copy_(work)

        return GroupWork(self.state, handles, outputs, dense, complete, opts)

    def _moved(
        self,
        handle: int,
        view: View,
        dense: Any,
        outputs: Any,
        opts: Any,
        put: Callable[[Any], None],
        memory: Out = 0,
        sorted_rows: int = 0,
    ) -> GroupWork:
        """Submits an operation whose size the ranks determine together.  put: consumes its flat result.

        memory: for the result of an alltoall of view's rows; a result of fitting size is written there directly.
        sorted_rows: elements of a row, for an alltoall whose result comes in the order of the process set.
        """

        def complete() -> None:
            rows = _native.take_splits(handle, self._size) if sorted_rows or isinstance(memory, tuple) else ()
            if isinstance(memory, tuple) and sum(rows) * view[2][1] * item_bytes_of(view) == memory[1]:
                _native.release(handle)
                collectives._settle(devices_of((view,)))
                return
            flat = self._take(handle, view, dense[0])
            if sorted_rows:
                parts = torch.split(flat, [count * sorted_rows for count in rows])
                flat = torch.cat([parts[place] for place in self._order])
            put(flat)

        return GroupWork(self.state, [handle], outputs, dense, complete, opts)

    # ---- what torch asks

    def set_timeout(self, timeout: timedelta) -> None:
        self.state.seconds = timeout.total_seconds()

    def abort(self) -> None:
        self.state.aborted = True

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._calls
