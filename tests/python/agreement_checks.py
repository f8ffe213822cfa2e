"""Checks of --agreement that every framework passes: flips are found, and equal ranks are not reported.

HVD_AGREEMENT is stop, HVD_AGREEMENT_STEPS is 4, and there are three ranks.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from typing import Any, Callable

import hvd.numpy as hvd
from hvd._agreement import exchange, memory
from hvd.exceptions import DivergedError

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
STEPS = 4
_numbers = itertools.count()


def fresh_name() -> str:
    """The name of a new comparison, the same on all ranks: an earlier one may be under way."""
    return f"tensors.{next(_numbers)}"


def flip(address: int, byte: int, bit: int) -> None:
    """Flips one bit of the memory."""
    there = (ctypes.c_ubyte * 1).from_address(address + byte)
    there[0] ^= 1 << bit


def flip_in(tensor: Any, element: int, bit: int = 6) -> None:
    """Flips a bit of the second highest byte of an element: the change of a number is neither tiny nor NaN."""
    place = memory.address_of(tensor)
    assert place is not None
    _, each = memory.elements_of(tensor)
    flip(place[0], (element + 1) * each - 2, bit)


def error_of(step: Callable[[], Any], most: int = STEPS + 2) -> str:
    """The error of the first of `most` steps that raises DivergedError."""
    for _ in range(most):
        try:
            step()
        except DivergedError as error:
            return str(error)
    raise AssertionError("nothing was found")


def names(error: str, pattern: str, culprit: int) -> None:
    """Checks that the line has the tensor and the rank."""
    assert re.search(rf"{pattern}, elements \d+-\d+, is not on rank {culprit} \(\S+\) what it is on the others", error), error


def found_so_far() -> int:
    """Windows that have differed, in all comparisons of this process."""
    return sum(one.found for one in exchange._exchanges)


class Patience:
    """Shorter waits for ranks that lack a step."""

    def __enter__(self) -> None:
        self.before = exchange._PATIENCE, exchange._PATIENCE_FOR_DETAILS
        exchange._PATIENCE, exchange._PATIENCE_FOR_DETAILS = 0.2, 1.0

    def __exit__(self, *_: object) -> None:
        exchange._PATIENCE, exchange._PATIENCE_FOR_DETAILS = self.before
