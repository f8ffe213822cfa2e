"""Averages gradients while backward() still runs.

A hook on each parameter counts backward passes; at the last one the gradient
goes to the runtime, which fuses what it gets.  synchronize() submits what no
hook did (parameters without a gradient on this rank count as zero, so that the
other ranks do not wait for ever) and waits for everything.

One thread per backward() calls the hooks of one device in turn, so there is no
lock here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import torch

from hvd import _native, _world
from hvd._submission import ALLREDUCE, Sum, View
from hvd.exceptions import HorovodInternalError
from hvd.process_sets import ProcessSet
from hvd.torch._registered import Home, home_for
from hvd.torch.compression import Compression
from hvd.torch.ops import collectives, sparse_allreduce_async

# Owns what the runtime reads and writes, also when the optimizer is gone before the operations have ended.
_pending = collectives._pending
_MARK = torch.uint8  # no gradient has this dtype


class _Slot:
    """One parameter: how many passes it still waits for, and what is under way."""

    __slots__ = (
        "context",
        "group",
        "handle",
        "home",
        "hook",
        "lacking",
        "mark",
        "name",
        "parameter",
        "passes_left",
        "sparse",
        "work",
    )

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.passes_left = passes
        self.handle = 0  # 0: nothing under way
        self.work: Any = None  # what the runtime reads and writes
        self.context: Any = None  # the compressor's
        self.mark = 0  # what tells the others that this gradient is sparse
        self.lacking = False  # there was no gradient on this rank
        self.sparse: Callable[[], torch.Tensor] | None = None
        self.group: _Group | None = None
        self.hook: Any = None
        self.home: Home | None = None


class _Group:
    """Parameters whose gradients run together."""

    __slots__ = ("ready", "slots")

    def __init__(self, slots: list[_Slot]) -> None:
        self.slots = slots
        self.ready = 0


class Settings:
    """What DistributedOptimizer was asked for."""

    def __init__(
        self,
        compression: Any,
        passes: int,
        op: int,
        predivide: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.compression = compression
        self.passes = passes
        self.op = op
        self.predivide = predivide
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set


class Reducer:
    """The gradients of one optimizer."""

    in_memory = True  # gradients live in registered memory where they can

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.compression = settings.compression
        self.slots: dict[int, _Slot] = {}  # by id of the parameter
        self._view = collectives._view

    def watch(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Hooks parameters that need a gradient."""
        for name, parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self.slots:
                slot = _Slot(parameter, name, self.settings.passes)
                self.slots[id(parameter)] = slot
                slot.hook = _after_accumulation(parameter, self._hook(slot))
                if self.in_memory and self.settings.compression is Compression.none and _world.local_size() == _world.size():
                    slot.home = home_for(parameter)

    def group(self, groups: Iterable[Iterable[torch.Tensor]]) -> None:
        """Makes the gradients of each inner list run together."""
        for parameters in groups:
            slots = [self.slots[id(p)] for p in parameters if id(p) in self.slots]
            if len(slots) > 1:
                group = _Group(slots)
                for slot in slots:
                    slot.group = group

    def set_passes(self, passes: int) -> None:
        """From now on, a step takes this many backward passes."""
        self.settings.passes = passes
        for slot in self.slots.values():
            slot.passes_left = passes

    @property
    def busy(self) -> bool:
        """Whether a backward pass has run since the last synchronize()."""
        passes = self.settings.passes
        return any(slot.passes_left != passes for slot in self.slots.values())

    def reset(self) -> None:
        """Waits for what is under way and forgets all passes; the gradients are left as they are."""
        started = [slot for slot in self.slots.values() if slot.handle or slot.sparse or slot.work is not None]
        if started:
            self.synchronize()
        for slot in self.slots.values():
            slot.passes_left = self.settings.passes
            if slot.group:
                slot.group.ready = 0

    # ---- during backward()

    def _hook(self, slot: _Slot) -> Callable[..., None]:
        def ready(*_: Any) -> None:
            slot.passes_left = left = slot.passes_left - 1
            if left > 0:
                return
            if left < 0:
                slot.passes_left = 0
                raise AssertionError(
                    f"{slot.name}: more backward passes than backward_passes_per_step={self.settings.passes} before step(); "
                    "set it to the number of backward() calls per step()"
                )
            if slot.home:
                slot.home.take_in(slot.parameter)
            group = slot.group
            if group is None:
                self._submit(slot)
            else:
                group.ready += 1
                if group.ready == len(group.slots):
                    self._submit_group(group)

        return ready

    def _request(self, slot: _Slot) -> Any:
        """What to submit for a slot; the gradient's own memory where that is possible."""
        settings = self.settings
        gradient: Any = slot.parameter.grad
        if gradient is None:
            gradient = slot.parameter.grad = torch.zeros_like(slot.parameter)
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        if self.compression is not Compression.none:
            gradient, slot.context = self.compression.compress(gradient)
        view: View | None = self._view(gradient)
        if view is None:
            gradient, view = collectives._staged(gradient)
        slot.work = gradient
        address, dtype, shape, device = view
        before, after = 1.0, 1.0
        if settings.predivide != 1.0:
            before, after = 1.0 / settings.predivide, settings.predivide
        group = settings.process_set.process_set_id
        return ALLREDUCE, dtype, settings.op, slot.name, shape, 0, group, device, before, after, address, address

    def _submit(self, slot: _Slot) -> None:
        gradient = slot.parameter.grad
        if gradient is not None and gradient.is_sparse and not self.settings.sparse_as_dense:
            # A rank without this gradient cannot know that it is sparse, and sends dense zeros under its name.  It finds
            # out by disagreeing with this mark (see _settle).
            slot.mark = collectives.allreduce_async_(
                torch.zeros(0, dtype=_MARK), None, slot.name, Sum, process_set=self.settings.process_set
            )
            self._submit_sparse(slot, gradient)
            return
        slot.lacking = gradient is None
        handle = _native.submit(*self._request(slot))
        slot.handle = handle
        _pending[handle] = slot.work

    def _submit_sparse(self, slot: _Slot, gradient: torch.Tensor) -> None:
        """Indices and values go by allgather: see sparse_allreduce_async."""
        slot.sparse = sparse_allreduce_async(gradient, slot.name, self.settings.op, self.settings.process_set)

    def _settle(self, slot: _Slot) -> None:
        """Waits for the zeros of a gradient that this rank lacks; joins in with no entries when the others' are sparse."""
        handle, slot.handle = slot.handle, 0
        try:
            _native.finish(handle)
        except HorovodInternalError as error:
            if error.code != "mismatch" or "uint8" not in str(error):
                raise
            parameter = slot.parameter
            indices = torch.zeros((1, 0), dtype=torch.int64, device=parameter.device)
            empty = torch.sparse_coo_tensor(indices, parameter.new_zeros((0, *parameter.shape[1:])), parameter.shape)
            parameter.grad = empty
            self._submit_sparse(slot, empty)
        finally:
            _pending.pop(handle, None)

    def _submit_group(self, group: _Group) -> None:
        requests = [self._request(slot) for slot in group.slots]
        for slot, handle in zip(group.slots, _native.submit_many(requests, _native.GROUP)):
            slot.handle = handle
            _pending[handle] = slot.work

    # ---- before step()

    def synchronize(self) -> None:
        """Waits until every parameter's gradient is reduced over all ranks."""
        collectives._may_wait()
        slots = self.slots.values()
        for slot in slots:
            if slot.handle or slot.sparse or slot.work is not None:
                continue
            if slot.group:
                self._submit_group(slot.group)
            else:
                self._submit(slot)
        try:
            for slot in slots:
                if slot.lacking:
                    self._settle(slot)
            _native.finish_many([slot.handle for slot in slots if slot.handle])
            collectives._settle()
            for slot in slots:
                self._store(slot)
        except KeyboardInterrupt:
            raise  # still under way
        except BaseException:
            self._forget()
            raise
        self._forget()

    def _store(self, slot: _Slot) -> None:
        gradient: Any = slot.parameter.grad
        if slot.sparse:
            if slot.mark:
                try:
                    collectives.synchronize(slot.mark)
                except HorovodInternalError as error:
                    if error.code != "mismatch":
                        raise
            slot.parameter.grad = slot.sparse().to(gradient.dtype)
        elif slot.work is not gradient:
            reduced = self.compression.decompress(slot.work, slot.context)
            if gradient.is_sparse:
                slot.parameter.grad = reduced.to(gradient.device).to_sparse(gradient.sparse_dim())
            else:
                with torch.no_grad():
                    gradient.copy_(reduced)

    def _forget(self) -> None:
        passes = self.settings.passes
        for slot in self.slots.values():
            _pending.pop(slot.handle, None)
            slot.handle = slot.mark = 0
            slot.lacking = False
            slot.work = slot.context = slot.sparse = None
            slot.passes_left = passes
            if slot.group:
                slot.group.ready = 0


def _after_accumulation(parameter: Any, hook: Callable[..., None]) -> Any:
    """Calls hook after backward() has added to parameter.grad.  Returns what must be kept for that."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # torch >= 2.1
        return parameter.register_post_accumulate_grad_hook(hook)
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    accumulator.register_hook(hook)
    return accumulator
