"""Metrics averaged over all ranks, for MetricAverageCallback."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from hvd import numpy as _numpy
from hvd._native import Average, Max
from hvd._runtime.objects import allgather_object
from hvd.exceptions import HorovodInternalError

__all__ = ["averaged", "what_ranks_lack"]

_MOST_RANKS = 4  # most ranks that a message names


def averaged(values: dict[str, float]) -> dict[str, float]:
    """Numbers by name, averaged over all ranks.

    Errors: HorovodInternalError on every rank if the ranks have different names.  The error lists the missing names of each
    rank.
    """
    names = sorted(values)
    _refuse_different(names)
    if not names:
        return {}
    array = np.array([float(values[name]) for name in names], np.float64)
    _numpy.allreduce_(array, name="keras.metrics", op=Average)
    return dict(zip(names, array.tolist()))


def what_ranks_lack(names: Sequence[Sequence[str]]) -> str:
    """The difference as text.  names: [ranks], the names on each rank."""
    lacking: dict[tuple[int, ...], list[str]] = {}
    for name in sorted(set().union(*names)):
        ranks = tuple(rank for rank, known in enumerate(names) if name not in known)
        if ranks:
            lacking.setdefault(ranks, []).append(name)
    return "; ".join(f"{_ranks(ranks)} {', '.join(missing)}" for ranks, missing in lacking.items())


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} lacks"
    shown = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = len(ranks) - _MOST_RANKS
    return f"ranks {shown}{f' and {more} more' if more > 0 else ''} lack"


def _refuse_different(names: list[str]) -> None:
    digest = hashlib.sha256("\n".join(names).encode()).digest()
    number = float(int.from_bytes(digest[:6], "little"))  # a float64 holds it exactly
    ends = np.array([number, -number])
    _numpy.allreduce_(ends, name="keras.metrics.names", op=Max)
    if ends[0] == -ends[1]:
        return
    lacking = what_ranks_lack(allgather_object(names, "keras.metrics.which"))
    error = HorovodInternalError(
        f"MetricAverageCallback: {lacking}. Give every rank the same metrics, and validation_data on all ranks or on none"
    )
    error.code = "mismatch"
    raise error
