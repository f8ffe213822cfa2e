"""Adasum of a step's changes: the optimizer steps on this rank's own gradients, then the changes are reduced.

Adasum is made for updates, not for gradients.  An optimizer with a state (momentum, Adam) would mix Adasum's weights into its
state.  So every rank steps alone, and the parameters become start + Adasum(parameters - start).
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from hvd._native import Adasum
from hvd.torch._optimizer.parameter_entries import ParameterEntry
from hvd.torch._optimizer.reducer import Reducer
from hvd.torch.ops import collectives


class AdasumUpdateReducer(Reducer):
    """A Reducer that counts backward passes like its base, and leaves the gradients alone."""

    in_memory = False
    reduces_gradients = False

    def _submit(self, entry: Any) -> None:
        pass

    def _submit_group(self, entries: Any) -> None:
        pass

    @property
    def has_gradients(self) -> bool:
        """True if this rank has any gradients."""
        return any(entry.parameter.grad is not None for entry in self._ordered)

    def synchronize(self) -> None:
        """Does nothing: no operation is pending before the step."""
        self._forget()

    def step(self, own: Callable[[], Any]) -> Any:
        """Calls the optimizer's own step, then reduces its changes.  Collective; returns the result of own().

        Parameters without a gradient on any rank do not travel.
        """
        settings = self.settings
        self._hook_unfrozen(self._ordered)
        self._name(self._ordered)
        self._drop_untouched()
        starts = {entry: entry.parameter.detach().clone() for entry in self._ordered if _can_change(entry.parameter)}
        result = own()
        changes: dict[ParameterEntry, torch.Tensor] = {}
        try:
            sums = self._exchange_presence(self._ordered, self._ordered)
            under_way = []
            for entry in [entry for entry, anywhere in zip(self._ordered, sums.of) if anywhere]:
                start = starts.setdefault(entry, entry.parameter.detach().clone())
                change, context = settings.compression.compress(entry.parameter.detach() - start)
                handle = collectives.allreduce_async_(change, None, entry.name, Adasum, process_set=settings.process_set)
                under_way.append((entry, handle, context))
            for entry, handle, context in under_way:
                changes[entry] = settings.compression.decompress(collectives.synchronize(handle), context)
        except BaseException:
            changes = {entry: torch.zeros_like(start) for entry, start in starts.items()}  # no change
            raise
        finally:
            with torch.no_grad():
                for entry, change in changes.items():
                    entry.parameter.copy_(starts[entry] + change)
            self._forget()
        return result


def _can_change(parameter: torch.Tensor) -> bool:
    return parameter.requires_grad or parameter.grad is not None
