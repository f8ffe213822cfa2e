"""Averages gradients while backward() still runs.

A hook on each parameter counts backward passes; at the last one the gradient goes to the runtime, which fuses what it
gets.  synchronize() submits what no hook did, and the ranks tell each other which parameters have a gradient anywhere: a
rank that lacks one counts as zero, so that the others do not wait for ever, and what nobody has a gradient for stays as it
is, so that the step does not move it.

A pass that comes when the gradient is under way (a GAN's discriminator has two before its step, and one more in the
generator's turn) adds to a new one, which is reduced in a second round.

One thread per backward() calls the hooks of one device in turn, so there is no lock here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from hvd import _native, _world
from hvd._submission import ALLREDUCE, Average, Sum, View
from hvd.process_sets import ProcessSet
from hvd.torch._presence import DENSE, MORE, SPARSE, Presence, end_mixtures, has_dense, has_more, has_sparse
from hvd.torch._registered import home_for
from hvd.torch._slots import Group, Slot, first_free, give_names, own, owner_of
from hvd.torch.compression import Compression
from hvd.torch.ops import collectives, moving, sparse_allreduce_async

# Owns what the runtime reads and writes, also when the optimizer is gone before the operations have ended.
_pending = collectives._pending


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
    reduces_gradients = True

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.compression = settings.compression
        self.slots: dict[int, Slot] = {}  # by id of the parameter
        self._ordered: list[Slot] = []  # by name: alike on all ranks
        self._groups: list[Group] = []
        self._handed_over = False
        self._view = collectives._view
        self._presence = Presence()
        self._told: list[int] | None = None  # what it said, while the gradients are under way

    def watch(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Takes parameters over from whatever reducer has them, and hooks those that need a gradient."""
        for name, parameter in parameters:
            if id(parameter) not in self.slots:
                slot = self.slots[id(parameter)] = Slot(parameter, name, self)
                if parameter.requires_grad:
                    self._hook(slot)
        self._ordered = sorted(self.slots.values(), key=lambda slot: slot.base_name)

    def group(self, groups: Iterable[Iterable[torch.Tensor]]) -> None:
        """Makes the gradients of each inner list run together."""
        for parameters in groups:
            slots = [slot for p in parameters if (slot := self.slots.get(id(p))) and slot.hooks]
            if len(slots) > 1:
                group = Group(slots)
                self._groups.append(group)
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
        return any(slot.passes_left != passes for slot in self._ordered) or any(other.busy for other in self._others())

    @property
    def has_gradients(self) -> bool:
        """Whether there may be a gradient to reduce: busy, or one of a parameter that has come to need one."""
        return self.busy or any(slot.parameter.grad is not None for slot in self._ordered if not slot.hooks)

    def reset(self) -> None:
        """Waits for what is under way and forgets all passes; the gradients are left as they are."""
        if any(slot.gradient is not None for slot in self._ordered):
            self.synchronize()
        self._forget()

    # ---- during backward()

    def _hook(self, slot: Slot) -> None:
        own(slot)
        slot.hook(self._begins, self._ready)
        if self.in_memory and self.settings.compression is Compression.none and _world.local_size() == _world.size():
            slot.home = home_for(slot.parameter)

    @staticmethod
    def _begins(slot: Slot) -> None:
        """A pass is about to add to the gradient."""
        self: Reducer = slot.reducer
        gradient = slot.parameter.grad
        if slot.gradient is None:
            if gradient is None and slot.passes_left != self.settings.passes:  # the script has cleared it
                if slot.passes_left <= 0 and slot.group:
                    slot.group.ready -= 1
                slot.passes_left = self.settings.passes
        elif self.settings.op not in (Average, Sum):
            raise AssertionError(self._too_many(slot))
        elif slot.more:
            slot.kept = slot.kept and (gradient is not None or not slot.added)
        else:
            slot.more = True
            slot.kept = gradient is slot.gradient  # else the script has cleared or replaced it
            if slot.kept:
                slot.parameter.grad = None

    @staticmethod
    def _ready(slot: Slot) -> None:
        """A pass has added to the gradient."""
        self: Reducer = slot.reducer
        slot.passes_left = left = slot.passes_left - 1
        slot.added = slot.more
        if left > 0:
            return
        if left < 0:
            slot.passes_left = 0
            if slot.gradient is not None and not slot.more:  # added to what is under way
                raise AssertionError(self._too_many(slot))
            return
        if slot.home:
            slot.home.take_in(slot.parameter)
        if not slot.name:
            return  # the first step: synchronize() submits it
        group = slot.group
        if group is None:
            self._submit(slot)
        else:
            group.ready += 1
            if group.ready == len(group.slots):
                self._submit_group(group.slots)

    def _too_many(self, slot: Slot) -> str:
        return (
            f"{slot.base_name}: more backward passes than backward_passes_per_step={self.settings.passes} before step(); "
            "set it to the number of backward() calls per step()"
        )

    def _request(self, slot: Slot) -> Any:
        """What to submit for a slot; the gradient's own memory where that is possible."""
        settings = self.settings
        gradient: Any = slot.parameter.grad
        slot.gradient = gradient
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

    def _travels_sparse(self, slot: Slot) -> bool:
        return not (self.settings.sparse_as_dense or slot.group)

    def _submit(self, slot: Slot) -> None:
        gradient = slot.parameter.grad
        if gradient is not None and gradient.is_sparse and self._travels_sparse(slot):
            slot.gradient = gradient
            # Indices and values go by allgather.
            slot.sparse = sparse_allreduce_async(gradient, slot.name, self.settings.op, self.settings.process_set)
            return
        handle = _native.submit(*self._request(slot))
        slot.handle = handle
        _pending[handle] = slot.work

    def _submit_group(self, slots: list[Slot]) -> None:
        requests = [self._request(slot) for slot in slots]
        for slot, handle in zip(slots, _native.submit_many(requests, _native.GROUP)):
            slot.handle = handle
            _pending[handle] = slot.work

    # ---- before step()

    def synchronize(self) -> None:
        """Waits until every parameter's gradient is reduced over all ranks; collective.  What nobody has stays None."""
        if not self.slots:
            return
        collectives._may_wait()
        slots = self._not_others()
        self._hook_unfrozen()
        self._name()
        if self._told is None:
            self._submit_the_rest(slots)
            self._told = self._tell(slots)
            mixed = [s for s, told in zip(self._ordered, self._told) if has_dense(told) and has_sparse(told)]
            if mixed := [slot for slot in mixed if self._travels_sparse(slot)]:
                error = end_mixtures(mixed, self.settings.process_set)
                self._forget(ended=False)
                raise error
            self._stand_in(slots, self._told)
        told = dict(zip(self._ordered, self._told))
        try:
            self._complete([slot for slot in slots if slot.gradient is not None])
            more = [slot for slot in slots if has_more(told[slot])]
            if more:
                self._second_round(more, told)
        except KeyboardInterrupt:
            raise  # still under way
        except BaseException:
            self._forget()
            raise
        self._forget()

    def _others(self) -> list[Reducer]:
        """Reducers that have taken over parameters of this one."""
        if not self._handed_over:
            return []
        owners = [owner_of(slot.parameter) for slot in self._ordered if not slot.hooks]
        return list({id(o.reducer): o.reducer for o in owners if o is not None and o.reducer is not self}.values())

    def _not_others(self) -> list[Slot]:
        """The slots that are this reducer's to reduce; others reduce theirs first."""
        others = [other for other in self._others() if other.reduces_gradients]
        for other in others:
            other.synchronize()
        if not others:
            return self._ordered
        return [s for s in self._ordered if s.hooks or (o := owner_of(s.parameter)) is None or o.reducer not in others]

    def hand_over(self, slot: Slot) -> None:
        """Another reducer hears of the slot's parameter from now on.  Collective where its gradient is under way."""
        if slot.gradient is not None:
            self.synchronize()
        slot.unhook()
        slot.passes_left = self.settings.passes
        self._handed_over = True

    def _hook_unfrozen(self) -> None:
        for slot in self._ordered:
            if not slot.hooks and slot.parameter.requires_grad and owner_of(slot.parameter) is None:
                self._hook(slot)

    def _name(self) -> None:
        """The ranks agree on names: a number that is free on all of them."""
        new = [slot for slot in self._ordered if not slot.name]
        if new:
            mine = torch.tensor([first_free(new)])
            numbers = moving.allgather(mine, f"{new[0].base_name}.number", self.settings.process_set)
            give_names(new, int(numbers.max()))

    def _drop_untouched(self) -> None:
        """What broadcast_optimizer_state has made is no gradient."""
        for slot in self._ordered:
            gradient: Any = slot.parameter.grad if slot.gradient is None else None
            if gradient is not None and getattr(gradient, "_hvd_untouched", None) == gradient._version:
                slot.parameter.grad = None

    def _submit_the_rest(self, slots: list[Slot]) -> None:
        """What is there, and was not submitted in backward()."""
        self._drop_untouched()
        for slot in slots:
            if slot.gradient is None and slot.group is None and slot.parameter.grad is not None:
                self._submit(slot)
        for group in self._groups:
            if all(slot.gradient is None and slot.parameter.grad is not None for slot in group.slots):
                self._submit_group(group.slots)

    def _tell(self, slots: list[Slot]) -> list[int]:
        mine = set(slots) if slots is not self._ordered else None
        numbers = []
        for slot in self._ordered:
            gradient = slot.parameter.grad
            there = slot.gradient if slot.gradient is not None else gradient
            if there is None or (mine is not None and slot not in mine):
                numbers.append(0)
            else:
                more = MORE if slot.more and gradient is not None else 0
                numbers.append((SPARSE if there.is_sparse else DENSE) + more)
        try:
            return self._presence.exchange(numbers, f"{self._ordered[0].base_name}.present", self.settings.process_set)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._forget(ended=False)
            raise

    def _stand_in(self, slots: list[Slot], told: list[int]) -> None:
        """Zeros for what other ranks have and this one lacks; and groups that no rank has all of."""
        by_slot = dict(zip(self._ordered, told))
        for slot in slots:
            anywhere = by_slot[slot]
            if not anywhere or slot.gradient is not None:
                continue
            if slot.parameter.grad is None:
                slot.parameter.grad = _zeros(slot.parameter, sparse=not has_dense(anywhere))
            if slot.group is None:
                self._submit(slot)
        for group in self._groups:
            members = [slot for slot in group.slots if by_slot[slot] and slot.gradient is None]
            if members:
                self._submit_group(members)

    def _complete(self, slots: list[Slot]) -> None:
        """Waits for what is under way, and puts it where it belongs."""
        _native.finish_many([slot.handle for slot in slots if slot.handle])
        collectives._settle()
        for slot in slots:
            self._store(slot)

    def _store(self, slot: Slot) -> None:
        into: Any = slot.into()
        if slot.sparse:
            reduced = slot.sparse()
            if into is not None:
                slot.give(reduced.to(into.dtype))
        elif into is not None and slot.work is not into:
            reduced = self.compression.decompress(slot.work, slot.context)
            if into.is_sparse:
                slot.give(reduced.to(into.device).to_sparse(into.sparse_dim()))
            else:
                with torch.no_grad():
                    into.copy_(reduced)

    def _second_round(self, slots: list[Slot], told: dict[Slot, int]) -> None:
        """Reduces what was added while the first gradients were under way, and adds it to them."""
        bases = []
        for slot in slots:
            bases.append(slot.into())
            added = slot.parameter.grad if slot.more else None
            self._end(slot)
            slot.parameter.grad = _zeros(slot.parameter, has_sparse(told[slot])) if added is None else added
            self._submit(slot)
        self._complete(slots)
        with torch.no_grad():
            for slot, base in zip(slots, bases):
                if base is not None:
                    slot.parameter.grad = base.add_(slot.parameter.grad)

    @staticmethod
    def _end(slot: Slot, ended: bool = True) -> None:
        if slot.kept and not slot.added:  # torch.autograd.grad() has only looked at it
            slot.parameter.grad = slot.gradient
        if ended:
            _pending.pop(slot.handle, None)
        slot.clear()

    def _forget(self, ended: bool = True) -> None:
        """ended: else the runtime may still write to what is under way."""
        passes = self.settings.passes
        self._told = None
        for slot in self._ordered:
            if slot.gradient is not None:
                self._end(slot, ended)
            slot.passes_left = passes
        for group in self._groups:
            group.ready = 0


def _zeros(parameter: torch.Tensor, sparse: bool) -> torch.Tensor:
    if not sparse:
        return torch.zeros_like(parameter)
    indices = torch.zeros((1, 0), dtype=torch.int64, device=parameter.device)
    values = parameter.new_zeros((0, *parameter.shape[1:]))
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
