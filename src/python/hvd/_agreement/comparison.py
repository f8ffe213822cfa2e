"""Compares lists of tensors between ranks, of any framework.  torch has a way of its own (hvd.torch.agreement).

Tensors in host memory are read in place.  For all other tensors, the pieces of the step's window are copied to the host.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hvd import numpy as _numpy
from hvd._agreement import memory
from hvd._agreement.exchange import Exchange
from hvd._agreement.host_windows import HOST_PIECE, divided, host_hashes, ranges, window_bytes
from hvd._runtime.objects import allgather_object
from hvd.process_sets import ProcessSet, global_process_set

__all__ = ["Comparison"]

_LEAST_LAYOUT = 64  # steps until the list of tensors is made anew


class _Part(NamedTuple):
    """A piece of a tensor.  at: its place in the list.  begin, end: in elements."""

    name: str
    at: int
    begin: int
    end: int
    element_bytes: int

    @property
    def bytes(self) -> int:
        return (self.end - self.begin) * self.element_bytes


class Comparison(Exchange):
    """The comparison of one list of tensors.  The caller makes a step with each of the optimizer's."""

    def __init__(
        self,
        process_set: ProcessSet = global_process_set,
        exclude: Iterable[str] = (),
        name: str = "",
        has_common_names: bool = True,
    ) -> None:
        """exclude: patterns for names that are not compared.  name: of the operations, the same on all ranks; "": a number."""
        self._exclude = [exclude] if isinstance(exclude, str) else list(exclude)
        self._own_name = name
        self._has_common_names = has_common_names
        self._values: Sequence[Any] = ()  # in a step
        super().__init__(process_set)

    def step(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Reports the last step's comparison, and begins this step's.

        names: of the values.  Values that are no tensors are left out.
        Errors, with --agreement stop: DivergedError.
        """
        if not self._compares():
            return
        self._begins(self._own_name)
        self._values = values
        try:
            if self._has_ended(self._patience):
                self._begin_step(names, self._values)  # _overwrite() may have changed the list
        finally:
            self._values = ()  # the next step may need their memory

    def _forget(self) -> None:
        super()._forget()
        self._layout: list[list[_Part]] = []
        self._count = -1  # of the values in the layout

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._exclude)

    def _begin_step(self, names: Sequence[str], values: Sequence[Any]) -> None:
        turns = -(-_LEAST_LAYOUT // len(self._layout)) * len(self._layout) if self._layout else 1
        if self._step % turns == 0 or self._count != len(values):
            self._layout, self._count = self._windows(names, values), len(values)
        self._step += 1
        if self._layout:
            window = self._layout[(self._step - 1) % len(self._layout)]
            self._send_hashes(window, self._hashes(window, values))

    def _compared(self, names: Sequence[str], values: Sequence[Any]) -> list[tuple[int, int, int]]:
        """Place, number of elements and bytes of an element, of the tensors that are compared."""
        sizes = [(at, *memory.elements_of(value)) for at, value in enumerate(values) if not self._is_excluded(names[at])]
        return [one for one in sizes if one[1]]

    def _windows(self, names: Sequence[str], values: Sequence[Any]) -> list[list[_Part]]:
        sizes = self._compared(names, values)
        budget = window_bytes(sum(elements * each for _, elements, each in sizes), self._steps)
        parts = [
            _Part(names[at], at, begin, end, each)
            for at, elements, each in sizes
            for begin, end in ranges(elements, each, min(budget, HOST_PIECE))
        ]
        return divided(parts, budget, self._steps)

    @staticmethod
    def _hashes(window: list[_Part], values: Sequence[Any]) -> list[int]:
        places, owners = [], []
        found: dict[int, tuple[int, Any] | None] = {}
        for part in window:
            value = values[part.at]
            elements, each = memory.elements_of(value)
            if elements < part.end or each != part.element_bytes:
                places.append((0, 0))  # it has another size now
                continue
            if part.at not in found:
                found[part.at] = memory.address_of(value)
            place = found[part.at]
            if place is None:
                copy = memory.copied(value, part.begin, part.end)
                owners.append(copy)
                places.append((copy.__array_interface__["data"][0], part.bytes))
            else:
                places.append((place[0] + part.begin * each, part.bytes))
        return host_hashes(places, len(os.sched_getaffinity(0)))

    def _overwrite(self, source: int) -> bool:
        values = self._values
        sizes = self._compared([""] * len(values), values)
        mine = [(*one, memory.can_be_overwritten(values[one[0]])) for one in sizes]
        told = allgather_object(mine, f"{self._name}.layout", self._set)
        if not mine or any(one != mine for one in told) or not all(one[-1] for one in mine):
            return False
        arrays = [np.array(memory.copied(values[at], 0, elements)) for at, elements, _ in sizes]
        names: list[str | None] = [f"{self._name}.{at}" for at in range(len(arrays))]
        flat = [array.view(np.uint8) for array in arrays]
        collectives = _numpy._collectives
        collectives.synchronize(collectives.broadcast_many_async_(flat, source, names, self._set))
        for (at, *_), array in zip(sizes, arrays):
            memory.overwrite(values[at], array)
        return True
