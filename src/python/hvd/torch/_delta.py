"""Adasum of what a step changes: the optimizer's own step on this rank's gradients, then a reduction of the change.

Adasum is made for updates, not for gradients: an optimizer with a state (momentum, Adam) would mix what Adasum has
weighted into its state.  So every rank steps alone, and the weights become start + Adasum(weights - start).
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from hvd._submission import Adasum
from hvd.torch._reducer import Reducer
from hvd.torch.ops import collectives


class DeltaReducer(Reducer):
    """A Reducer that counts backward passes like its base, and leaves the gradients alone."""

    in_memory = False

    def _submit(self, slot: Any) -> None:
        pass

    def _submit_group(self, group: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing is under way before the step."""
        self._forget()

    def step(self, own: Callable[[], Any]) -> Any:
        """Calls the optimizer's own step, then reduces what it has changed.  Collective; returns what own() returns."""
        settings = self.settings
        slots = list(self.slots.values())
        starts = [slot.parameter.detach().clone() for slot in slots]
        result = own()
        try:
            under_way = []
            for slot, start in zip(slots, starts):
                change, context = settings.compression.compress(slot.parameter.detach() - start)
                handle = collectives.allreduce_async_(change, None, slot.name, Adasum, process_set=settings.process_set)
                under_way.append((handle, context))
            changes = [settings.compression.decompress(collectives.synchronize(h), context) for h, context in under_way]
        except BaseException:
            changes = [torch.zeros_like(start) for start in starts]  # as if there had been no step
            raise
        finally:
            with torch.no_grad():
                for slot, start, change in zip(slots, starts, changes):
                    slot.parameter.copy_(start + change)
            self._forget()
        return result
