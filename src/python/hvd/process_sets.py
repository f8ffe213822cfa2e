"""Process sets: groups of ranks that run operations of their own.

Only the global set exists so far: hvd.h has no call to make another one yet,
and add_process_set says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]

_size = 0
_rank = -1


class ProcessSet:
    """Some of the ranks.  process_set_id is None until the set has been added."""

    process_set_id: int | None = None

    def __init__(self, ranks_or_comm: Sequence[int] | Any) -> None:
        self.ranks: list[int] | None = sorted(int(rank) for rank in ranks_or_comm)

    def size(self) -> int | None:
        """How many ranks the set has; None before it is added or before init()."""
        return None if self.process_set_id is None or self.ranks is None else len(self.ranks)

    def rank(self) -> int | None:
        """This rank's place in the set; None when it is no member, or before init()."""
        ranks = self.ranks if self.process_set_id is not None else None
        return ranks.index(_rank) if ranks and _rank in ranks else None

    def included(self) -> bool | None:
        """Whether this rank is a member; None before the set is added or before init()."""
        return None if self.process_set_id is None or self.ranks is None else _rank in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        self.ranks = None

    def __reduce__(self) -> str:
        return "global_process_set"  # there is one, in every process


global_process_set: ProcessSet = _GlobalProcessSet()


def world_changed(rank: int, size: int) -> None:
    """Called by init and shutdown (then with -1, 0)."""
    global _rank, _size
    _rank, _size = rank, size
    global_process_set.ranks = list(range(size)) if size else None


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a set.  Collective.  ValueError for a duplicate; RuntimeError where libhvd has no sets but the global one."""
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.process_set_id is not None or added.ranks == list(range(_size)):
        raise ValueError(f"a process set with these ranks exists already: {added}")
    bad = [rank for rank in added.ranks or [] if not 0 <= rank < _size]
    if bad:
        raise ValueError(f"process set {added.ranks}: there is no rank {bad[0]} in a world of {_size}")
    raise NotImplementedError(f"process set {added.ranks}: this version has the global process set only")


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set that was added.  The global set stays: False."""
    return False
