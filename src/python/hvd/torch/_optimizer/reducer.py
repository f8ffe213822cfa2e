"""Averages gradients while backward() still runs.

A hook on each parameter counts backward passes.  At the last pass the hook gives the gradient to the runtime, with
other complete gradients (outbox.py).  synchronize() submits the gradients that no hook submitted.  Before that, the
ranks learn which parameters have a gradient on any rank.  For such a parameter, a rank without a gradient contributes
zeros, so that the others do not wait without end.  A parameter without a gradient on any rank does not change.

A pass may come while the gradient is in progress.  For example, a GAN's discriminator has two passes before its step,
and one more in the generator's turn.  Such a pass adds to a new gradient, and synchronize() reduces the new gradient in
a second round.  second_passes.py watches for such passes.

In a backward(), one thread calls all hooks of a device, so the state of an entry needs no lock.

The hooks are in C (ext/native/gradients/gradient.c), and submit an ordinary gradient themselves: dense, in no group, and not
compressed. Reducer._begins and _ready handle the others, and define the rules for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import ref

import torch

from hvd import _native
from hvd._native import Average, Sum
from hvd._runtime import world as _world
from hvd.torch._optimizer import second_passes
from hvd.torch._optimizer import share_gradients as _share_gradients
from hvd.torch._optimizer.gradient_presence import (
    DENSE,
    MORE,
    SPARSE,
    GradientPresence,
    PresenceSums,
    end_mixtures,
    has_dense,
    has_more,
    has_sparse,
)
from hvd.torch._optimizer.gradient_transport import GradientTransport, Settings, zeros_for
from hvd.torch._optimizer.parameter_entries import (
    ParameterEntry,
    ParameterGroup,
    first_free,
    give_names,
    layout_number,
    memory_order,
    number_before,
    own,
    owner_of,
)
from hvd.torch._optimizer.registered_gradients import registered_gradient_for
from hvd.torch.compression import Compression
from hvd.torch.ops import collectives


class Reducer(GradientTransport):
    """The gradients of one optimizer."""

    in_memory = True  # moves gradients to memory that the runtime has registered, if possible
    reduces_gradients = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.entries: dict[int, ParameterEntry] = {}  # by id of the parameter
        self._ordered: list[ParameterEntry] = []  # by name: the same on all ranks
        self._groups: list[ParameterGroup] = []
        self._handed_over = False
        self._presence = GradientPresence()
        self._presence_sums: PresenceSums | None = None  # while the gradients are in progress
        self._shares: _share_gradients.ShareGradients | None = None  # of the batch of a GlobalBatchLoader
        self._added_up: Any = None  # the last such batch that was reduced

    def watch(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Takes parameters over from their present reducers, and hooks those that need a gradient."""
        second_passes.watch(self)
        for name, parameter in parameters:
            if id(parameter) not in self.entries:
                entry = self.entries[id(parameter)] = ParameterEntry(parameter, name, self)
                if parameter.requires_grad:
                    self._hook(entry)
        self._ordered = sorted(self.entries.values(), key=lambda entry: entry.base_name)
        for place, entry in enumerate(self._ordered):
            entry.place = place

    def group(self, groups: Iterable[Iterable[torch.Tensor]]) -> None:
        """Makes the gradients of each inner list run together."""
        for parameters in groups:
            entries = [entry for p in parameters if (entry := self.entries.get(id(p))) and entry.hooks]
            if len(entries) > 1:
                group = ParameterGroup(entries)
                self._groups.append(group)
                for entry in entries:
                    entry.group = group

    def set_passes(self, passes: int) -> None:
        """From now on, a step takes this many backward passes."""
        self.settings.passes = passes
        for entry in self.entries.values():
            entry.passes = entry.passes_left = passes

    @property
    def busy(self) -> bool:
        """True if a backward pass has run since the last synchronize()."""
        if self._shares is not None and self._shares.found:
            return True
        return _native.passes_begun(self._ordered) or any(other.busy for other in self._others())

    @property
    def has_gradients(self) -> bool:
        """True if there may be a gradient to reduce: busy, or a parameter without hooks has a gradient."""
        if _share_gradients.active is not None and _share_gradients.active is not self._added_up:
            return True  # some rank may have a share of this batch
        return self.busy or any(entry.parameter.grad is not None for entry in self._ordered if not entry.hooks)

    def reset(self) -> None:
        """Waits for the operations in progress and forgets all passes; the gradients do not change."""
        self._outbox.flush()
        if any(entry.gradient is not None for entry in self._ordered):
            self.synchronize()
        self._forget()

    # ---- during backward()

    def _hook(self, entry: ParameterEntry) -> None:
        own(entry)
        if type(self) is Reducer and self.compression is Compression.none:
            entry.outbox = ref(self._outbox)
        entry.hook(self._begins, self._ready)
        if self.in_memory and self.settings.compression is Compression.none and _world.local_size() == _world.size():
            entry.registered = registered_gradient_for(entry.parameter)

    @staticmethod
    def _begins(entry: ParameterEntry) -> None:
        """A pass is about to add to the gradient."""
        self: Reducer = entry.reducer
        if _share_gradients.active is not None:
            return self._shares_of(_share_gradients.active).begins(entry)
        gradient = entry.parameter.grad
        if entry.gradient is None:
            if gradient is None and entry.passes_left != self.settings.passes:  # the script has cleared it
                if entry.passes_left <= 0 and entry.group:
                    entry.group.ready -= 1
                entry.passes_left = self.settings.passes
        elif self.settings.op not in (Average, Sum):
            raise AssertionError(self._too_many(entry))
        elif entry.more:
            entry.kept = entry.kept and (gradient is not None or not entry.added)
        else:
            entry.more = True
            entry.kept = gradient is entry.gradient  # else the script has cleared or replaced it
            if entry.kept:
                entry.parameter.grad = None

    @staticmethod
    def _ready(entry: ParameterEntry) -> None:
        """A pass has added to the gradient."""
        self: Reducer = entry.reducer
        if _share_gradients.active is not None:
            return self._shares_of(_share_gradients.active).ready(entry)
        entry.passes_left = left = entry.passes_left - 1
        entry.added = entry.more
        if left > 0:
            return
        if left < 0:
            entry.passes_left = 0
            if entry.gradient is not None and not entry.more:  # added to the gradient in progress
                raise AssertionError(self._too_many(entry))
            return
        if entry.registered:
            entry.registered.move_in(entry.parameter)
        if not entry.name:
            return  # the first step: synchronize() submits it
        group = entry.group
        if group is None:
            self._submit(entry)
            self._outbox.look()
        else:
            group.ready += 1
            if group.ready == len(group.entries):
                self._submit_group(group.entries)

    def _shares_of(self, batch: _share_gradients.ShareWeights) -> _share_gradients.ShareGradients:
        if self._shares is None or self._shares.batch is not batch:
            _share_gradients.refuse(self.settings, type(self) is Reducer)
            self._shares = _share_gradients.ShareGradients(batch)
        if _share_gradients.share is None:
            raise RuntimeError("backward() outside of a micro-batch: call it within `for part in batch:`")
        return self._shares

    def _too_many(self, entry: ParameterEntry) -> str:
        return (
            f"{entry.base_name}: more backward passes than backward_passes_per_step={self.settings.passes} before step(); "
            "set it to the number of backward() calls per step()"
        )

    # ---- before step()

    def synchronize(self) -> None:
        """Waits until every gradient is reduced over all ranks; collective.  A gradient that no rank has stays None."""
        if not self.entries:
            return
        self._outbox.flush()
        collectives._may_wait(self._outbox.devices)
        if _share_gradients.active is not None:
            return self._add_up_shares(_share_gradients.active)
        entries = self._not_others()
        # The entries that need Python: all but those that the hooks have submitted themselves.
        others = unusual = _native.extraordinary(self._ordered)
        if others:
            self._hook_unfrozen(others)
            self._name(others)
        if entries is not self._ordered:
            mine = set(entries)
            others = [entry for entry in others if entry in mine]
        if self._presence_sums is None:
            self._submit_the_rest(others)
            self._presence_sums = self._exchange_presence(entries, unusual)
            self._refuse_mixtures(self._presence_sums)
            self._stand_in(others, self._presence_sums)
        sums = self._presence_sums
        try:
            self._complete([entry for entry in entries if entry.gradient is not None] if others else entries)
            if sums.are_special:
                more = [entry for entry in entries if has_more(sums.of[entry.place])]
                if more:
                    self._second_round(more, sums)
        except KeyboardInterrupt:
            raise  # still in progress
        except BaseException:
            self._forget()
            raise
        self._forget()

    def _refuse_mixtures(self, sums: PresenceSums) -> None:
        if not sums.are_special:
            return
        mixed = [entry for entry, sum in zip(self._ordered, sums.of) if has_dense(sum) and has_sparse(sum)]
        if mixed := [entry for entry in mixed if self._travels_sparse(entry)]:
            error = end_mixtures(mixed, self.settings.process_set)
            self._forget(ended=False)
            raise error

    def _add_up_shares(self, batch: _share_gradients.ShareWeights) -> None:
        """synchronize() for a batch of a GlobalBatchLoader; this rank may have no share of it."""
        found = self._shares
        if found is None or found.batch is not batch:
            _share_gradients.refuse(self.settings, type(self) is Reducer)
            found = _share_gradients.ShareGradients(batch)
        self._hook_unfrozen(self._ordered)
        try:
            missing = {entry.place: 0 for entry in self._ordered if entry not in found.found}
            name = self._ordered[0].base_name
            sums = self._presence.exchange(len(self._ordered), missing, f"{name}.present", self.settings.process_set)
            _share_gradients.add_up(found, [s for s, there in zip(self._ordered, sums.of) if there], name)
        finally:
            self._shares, self._added_up = None, batch

    def _others(self) -> list[Reducer]:
        """Reducers that have taken over parameters of this one."""
        if not self._handed_over:
            return []
        owners = [owner_of(entry.parameter) for entry in self._ordered if not entry.hooks]
        return list({id(o.reducer): o.reducer for o in owners if o is not None and o.reducer is not self}.values())

    def _not_others(self) -> list[ParameterEntry]:
        """Synchronizes the reducers that took parameters over, and returns the entries that remain here."""
        others = [other for other in self._others() if other.reduces_gradients]
        for other in others:
            other.synchronize()
        if not others:
            return self._ordered
        return [s for s in self._ordered if s.hooks or (o := owner_of(s.parameter)) is None or o.reducer not in others]

    def hand_over(self, entry: ParameterEntry) -> None:
        """Gives the entry's parameter to another reducer.  Collective if its gradient is in progress."""
        self._outbox.flush()
        if entry.gradient is not None:
            self.synchronize()
        entry.unhook()
        entry.passes_left = self.settings.passes
        self._handed_over = True

    def _hook_unfrozen(self, entries: list[ParameterEntry]) -> None:
        for entry in entries:
            if not entry.hooks and entry.parameter.requires_grad and owner_of(entry.parameter) is None:
                self._hook(entry)

    def _name(self, entries: list[ParameterEntry]) -> None:
        """Agrees with all ranks on names, by a number that is free on all.  entries: in order; those with a name keep it.

        After a join, a number that all ranks have stays.
        """
        new = [entry for entry in entries if not entry.name]
        if new:
            layout = layout_number(new)
            mine = torch.tensor([[first_free(new), layout, number_before(new)]])
            found = collectives.allgather(mine, f"{new[0].base_name}.number", self.settings.process_set)
            before = found[:, 2]
            stays = bool((before == before[0]).all()) and int(before[0]) >= 0
            give_names(new, int(before[0] if stays else found[:, 0].max()))
            lie_alike = bool((found[:, 1] == layout).all())
            for entry in new:
                entry.measure()
                entry.order = memory_order(entry.parameter) if lie_alike else None
            self._outbox.plan(self._ordered)

    def _drop_untouched(self) -> None:
        drop_untouched(entry.parameter for entry in self._ordered if entry.gradient is None)

    def _submit_the_rest(self, entries: list[ParameterEntry]) -> None:
        """Submits the gradients that were not submitted in backward()."""
        if not entries:
            return
        self._drop_untouched()
        for entry in entries:
            if entry.gradient is None and entry.group is None and entry.parameter.grad is not None:
                self._submit(entry)
        for group in self._groups:
            if all(entry.gradient is None and entry.parameter.grad is not None for entry in group.entries):
                self._submit_group(group.entries)
        self._outbox.flush()

    def _exchange_presence(self, entries: list[ParameterEntry], others: list[ParameterEntry]) -> PresenceSums:
        """Counts the ranks with a gradient, for each parameter.  Collective.

        entries: those of this reducer.  others: the parameters that may have no dense gradient.
        """
        mine = set(entries) if entries is not self._ordered else None
        numbers = {entry.place: self._presence_of(entry, mine) for entry in others}
        name = f"{self._ordered[0].base_name}.present"
        try:
            return self._presence.exchange(len(self._ordered), numbers, name, self.settings.process_set)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._forget(ended=False)
            raise

    @staticmethod
    def _presence_of(entry: ParameterEntry, mine: set[ParameterEntry] | None) -> int:
        gradient = entry.parameter.grad
        there = entry.gradient if entry.gradient is not None else gradient
        if there is None or (mine is not None and entry not in mine):
            return 0
        more = MORE if entry.more and gradient is not None else 0
        return (SPARSE if there.is_sparse else DENSE) + more

    def _stand_in(self, entries: list[ParameterEntry], sums: PresenceSums) -> None:
        """Submits zeros for gradients that only other ranks have, and the groups that this rank has not submitted."""
        if not entries:
            return
        for entry in entries:
            anywhere = sums.of[entry.place]
            if not anywhere or entry.gradient is not None:
                continue
            if entry.parameter.grad is None:
                entry.parameter.grad = zeros_for(entry.parameter, sparse=not has_dense(anywhere))
            if entry.group is None:
                self._submit(entry)
        for group in self._groups:
            members = [entry for entry in group.entries if sums.of[entry.place] and entry.gradient is None]
            if members:
                self._submit_group(members)
        self._outbox.flush()

    def _second_round(self, entries: list[ParameterEntry], sums: PresenceSums) -> None:
        """Reduces gradients that were added while the first ones were in progress, and adds them to the results."""
        bases = []
        for entry in entries:
            bases.append(entry.into())
            added = entry.parameter.grad if entry.more else None
            self._end(entry)
            entry.parameter.grad = zeros_for(entry.parameter, has_sparse(sums.of[entry.place])) if added is None else added
            self._submit(entry)
        self._outbox.flush()
        self._complete(entries)
        with torch.no_grad():
            for entry, base in zip(entries, bases):
                if base is not None:
                    entry.parameter.grad = base.add_(entry.parameter.grad)

    def _forget(self, ended: bool = True) -> None:
        """Resets all entries. ended: False if the runtime may still write to their memory."""
        self._presence_sums = self._shares = None
        self._outbox.forget_devices()
        for entry in _native.clear_gradients(self._ordered):
            self._end(entry, ended)
        if ended:
            self._outbox.release()
        else:
            self._outbox.abandon()
        for group in self._groups:
            group.ready = 0


def drop_untouched(parameters: Iterable[torch.Tensor]) -> None:
    """Removes the gradients that broadcast_optimizer_state has made."""
    for parameter in parameters:
        gradient: Any = parameter.grad
        if gradient is not None and getattr(gradient, "_hvd_untouched", None) == gradient._version:
            parameter.grad = None
