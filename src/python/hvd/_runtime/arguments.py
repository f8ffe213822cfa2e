"""Checks of the operations' arguments, the same for every framework."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

from hvd._native import REDUCE_NAMES, Average, Sum
from hvd.exceptions import UnsupportedError


def reduce_op(op: int | None, average: bool | None) -> int:
    """The reduce op of a call: op, or the older `average` flag, or Average.  ValueError when both are given."""
    if average is None:
        if op is None:
            return Average
        if op.__class__ is int and 0 <= op < len(REDUCE_NAMES):
            return op
        raise ValueError(f"op is {op!r}: it must be one of {', '.join(REDUCE_NAMES)}")
    if op is not None:
        raise ValueError("op and average are both given: average is the older name of the same thing, leave it out")
    return Average if average else Sum


def scatter_op(op: int) -> int:
    """The reduce op of a reducescatter.  UnsupportedError for any op except Average and Sum."""
    if op.__class__ is int and op in (Average, Sum):
        return op
    name = REDUCE_NAMES[op] if op.__class__ is int and 0 <= op < len(REDUCE_NAMES) else repr(op)
    raise UnsupportedError(f"reducescatter with op={name}: it can be Average or Sum, not Adasum, Min, Max or Product")


def split_rows(splits: Any) -> tuple[int, ...] | None:
    """An alltoall's splits, a sequence or a one-dimensional tensor of integers, as the C module takes them."""
    if splits is None:
        return None
    rows = splits.tolist() if hasattr(splits, "tolist") else splits
    try:
        return tuple(map(operator.index, rows))
    except TypeError:
        raise ValueError("splits must be a one-dimensional sequence of integers, one for each rank") from None


def checked_name(name: Any) -> str | None:
    """A name for an operation.  TypeError if it is no string; ValueError if libhvd would read only a part of it."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name is {name!r}: it must be a string")
    if name and "\0" in name:
        raise ValueError(f"name is {name!r}: it must not contain a NUL character")
    return name


def member_names(name: str | None, count: int) -> list[str | None]:
    """The names of a group's tensors."""
    return [None] * count if name is None else [f"{checked_name(name)}.{index}" for index in range(count)]


def checked_factor(factor: Any, what: str) -> float:
    """prescale_factor or postscale_factor.  TypeError if it is no number."""
    try:
        if not isinstance(factor, str):
            return float(factor)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{what} is {factor!r}: it must be a number")


def checked_predivide(factor: Any, op: int) -> float:
    """gradient_predivide_factor.  ValueError if it is no positive number, or the gradients are not averaged."""
    reduce_op(op, None)
    if not isinstance(factor, numbers.Real) or not 0 < float(factor) < math.inf:
        raise ValueError(f"gradient_predivide_factor is {factor!r}: it must be a number greater than 0")
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor works with op=Average only")
    return float(factor)
