"""Finds the parameters with a gradient on some rank; the ranks of a reducer exchange this once a step.

There is one number for each parameter, summed over the ranks.  Its three fields are counts of ranks: with a dense
gradient, with a sparse gradient, with a second gradient.  A second gradient is added while the first is pending.  A
rank that has joined (hvd.join) counts as a rank without gradients.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cached_property
from typing import Any, Callable

import torch

from hvd import _native
from hvd._native import Sum
from hvd._runtime.requests import HOST, Operation, Request
from hvd._runtime.submission import hand_over
from hvd.exceptions import HorovodInternalError
from hvd.process_sets import ProcessSet, number_of
from hvd.torch._optimizer.parameter_entries import ParameterEntry
from hvd.torch.ops import collectives

DENSE, SPARSE, MORE = 1, 1 << 21, 1 << 42
_FIELD = (1 << 21) - 1


def has_dense(presence: int) -> bool:
    """Returns whether some rank has a dense gradient."""
    return bool(presence & _FIELD)


def has_sparse(presence: int) -> bool:
    """Returns whether some rank has a sparse gradient."""
    return bool(presence >> 21 & _FIELD)


def has_more(presence: int) -> bool:
    """Returns whether some rank has a second gradient."""
    return presence >= MORE


class PresenceSums:
    """The result of the exchange.

    are_special: some rank has a sparse gradient, or a second one.
    """

    def __init__(self, sums: bytearray) -> None:
        """sums: 8 bytes for each parameter; the next exchange writes to them."""
        self._sums = sums
        self.are_special = _native.greatest(sums) >= SPARSE

    @cached_property
    def of(self) -> list[int]:
        """The sum for each parameter, by its place."""
        return memoryview(self._sums).cast("q").tolist()


class GradientPresence:
    """The exchange; one at a time.  After a KeyboardInterrupt the next call continues to wait for the same one.

    Its numbers stay in the same memory, and need no tensor: a step pays for each call of torch's Python.
    """

    def __init__(self) -> None:
        self._handle = 0
        self._numbers = bytearray()
        self._all_dense = b""

    def exchange(self, count: int, others: dict[int, int], name: str, process_set: ProcessSet) -> PresenceSums:
        """The sums of all ranks' numbers.  Collective; the same parameters in the same order on all ranks.

        count: of the parameters.  others: this rank's numbers by the parameters' places, except those that are DENSE.
        """
        if not self._handle:
            self._write(count, others)
            view = (self._numbers, _native.DTYPES["int64"], (count,), HOST)
            operation = Operation(_native.ALLREDUCE, number_of(process_set), Sum)
            self._handle = _native.submit(Request(operation, name, view, self._numbers))
        try:
            hand_over()
            _native.finish(self._handle)
        except BaseException as error:
            _native.leak(self._numbers)  # the runtime may still write to them
            if not isinstance(error, KeyboardInterrupt):
                self._handle, self._numbers = 0, bytearray()
            raise
        self._handle = 0
        return PresenceSums(self._numbers)

    def _write(self, count: int, others: dict[int, int]) -> None:
        if len(self._numbers) == 8 * count:
            self._numbers[:] = self._all_dense
        else:
            self._all_dense = DENSE.to_bytes(8, sys.byteorder) * count
            self._numbers = bytearray(self._all_dense)
        numbers = memoryview(self._numbers).cast("q")
        for place, number in others.items():
            numbers[place] = number


def end_mixtures(entries: list[ParameterEntry], process_set: ProcessSet) -> HorovodInternalError:
    """The error for gradients that are sparse on some ranks and dense on others, which travel in different operations.

    Collective: every rank joins the operations of the other kind with dummy data, so that all of them end.
    """
    odd = torch.zeros(1, dtype=torch.uint8)
    waits: list[Callable[[], Any]] = []
    for entry in entries:
        handles = []
        if entry.handle:
            waits.append(lambda handle=entry.handle: _native.finish(handle))  # type: ignore[misc]
        else:
            handles.append(collectives.allreduce_async_(odd, None, entry.name, Sum, process_set=process_set))
        if entry.sparse:
            waits.append(entry.sparse)
        else:
            for what in ("indices", "values"):
                handles.append(collectives.allgather_async(odd, f"{entry.name}.{what}", process_set))
        waits += [lambda handle=handle: collectives.synchronize(handle) for handle in handles]  # type: ignore[misc]
    for wait in waits:
        with suppress(HorovodInternalError):
            wait()
    error = HorovodInternalError(
        f"the gradient of {entries[0].base_name} is sparse on some ranks and dense on others: use sparse_as_dense=True"
    )
    error.code = "mismatch"
    return error
