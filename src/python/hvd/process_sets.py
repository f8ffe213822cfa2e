"""Process sets: groups of ranks that run operations of their own.

Sets never wait for each other.  Operations in a set take it as process_set=.  In a set, ranks and results are in the order
of their world ranks.  root_rank is always a rank of the world.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hvd import _native
from hvd._runtime import environment as _environment
from hvd._runtime.requests import gather_bytes

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "program_sets", "remove_process_set"]

_size = 0
_rank = -1
_launch: list[int] | None = None  # the launch's ranks that form the world, unless all do
_living: list[ProcessSet] = []  # sets that were added and not removed
_programs: list[ProcessSet] = []  # the result of program_sets()


class ProcessSet:
    """Some of the ranks: a list of them, or an mpi4py communicator.

    process_set_id is None until init(process_sets=) or add_process_set() has made the set, and after its removal.
    """

    process_set_id: int | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Sequence[int] | Any) -> None:
        self.ranks: list[int] | None = None
        if hasattr(ranks_or_comm, "Get_group"):
            self.mpi_comm = ranks_or_comm
            return
        if not isinstance(ranks_or_comm, Iterable):
            raise ValueError(f"a process set is made of a list of ranks or an mpi4py communicator, not of {ranks_or_comm!r}")
        self.ranks = sorted(checked_ranks(ranks_or_comm, "process set"))

    def size(self) -> int | None:
        """The number of ranks in the set; None before init(), and until the set is added."""
        return None if self.process_set_id is None or self.ranks is None else len(self.ranks)

    def may_change(self) -> bool:
        """Returns whether the set's size may change: only the world of an elastic job can.  A traced function must expect the
        change."""
        return self.process_set_id == 0 and _environment.flag("HOROVOD_ELASTIC")

    def rank(self) -> int | None:
        """This rank's place in the set; None before init(), and until the set is added.  ValueError if it is no member."""
        if self.process_set_id is None or not self.ranks or _rank < 0:
            return None
        if _rank not in self.ranks:
            raise ValueError(f"rank {_rank} is not a member of {self}")
        return self.ranks.index(_rank)

    def included(self) -> bool | None:
        """Returns whether this rank is a member; None before init(), or while the ranks are not known."""
        return None if self.ranks is None or _rank < 0 else _rank in self.ranks

    def place_of(self, rank: int) -> int:
        """The place of the world's rank in the set.  ValueError when it is no member."""
        if self.ranks is None or self.process_set_id == 0:
            return rank  # libhvd checks it
        if rank not in self.ranks:
            raise ValueError(f"root_rank {rank} is not a member of {self}: it is a rank of the world, not of the set")
        return self.ranks.index(rank)

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        self.ranks = None

    def __reduce__(self) -> str:
        return "global_process_set"  # every process has one


global_process_set: ProcessSet = _GlobalProcessSet()


def checked_ranks(ranks: Iterable[Any], what: str) -> list[int]:
    """A user's ranks as integers.  ValueError for anything but whole numbers; libhvd checks that the ranks exist."""
    found = list(ranks)
    for rank in found:
        if not hasattr(rank, "__index__") or isinstance(rank, bool):
            raise ValueError(f"{what} {found}: {rank!r} is not a rank")
    return [rank.__index__() for rank in found]


def number_of(process_set: ProcessSet) -> int | None:
    """The set's process_set_id.  TypeError for anything but a process set."""
    try:
        return process_set.process_set_id
    except AttributeError:
        said = f"process_set is {process_set!r}: it must be a ProcessSet (hvd.global_process_set is all ranks)"
        raise TypeError(said) from None


def numbered(number: int | None) -> ProcessSet:
    """The set with this process_set_id.  ValueError if there is none."""
    for known in (global_process_set, *_living):
        if known.process_set_id == number:
            return known
    raise ValueError("this process set was not added, or is removed (see hvd.add_process_set)")


def root_of(process_set: ProcessSet, root_rank: int) -> int:
    """The place of the world's rank in the set.  ValueError when it is no member, TypeError for anything but a process set."""
    return process_set.place_of(root_rank) if number_of(process_set) else root_rank


def ranks_of_communicator(comm: Any) -> list[int]:
    """The launch's ranks in an mpi4py communicator; empty for COMM_NULL."""
    from mpi4py import MPI  # type: ignore[import-not-found, unused-ignore]

    if comm == MPI.COMM_NULL:
        return []
    group = comm.Get_group()
    return list(group.Translate_ranks(list(range(group.Get_size())), MPI.COMM_WORLD.Get_group()))


def world_changed(rank: int, size: int, launch: list[int] | None = None) -> None:
    """Called by init and shutdown (then with -1, 0).  launch: ranks of the launch that form the world, None: all."""
    global _rank, _size, _launch
    _rank, _size, _launch = rank, size, launch
    global_process_set.ranks = list(range(size)) if size else None
    for process_set in _living:
        process_set.process_set_id = None
    _living.clear()
    _programs.clear()


def ranks_by_id() -> dict[int, list[int]]:
    """The ranks of all sets that were added on this rank, without the global one."""
    return {int(s.process_set_id or 0): list(s.ranks or []) for s in _living}


def _in_world(process_set: ProcessSet) -> list[int]:
    """The world's ranks of a set that an mpi4py communicator defines on this rank; empty for COMM_NULL."""
    ranks = ranks_of_communicator(process_set.mpi_comm)
    if _launch is None:
        return sorted(ranks)
    outside = [rank for rank in ranks if rank not in _launch]
    if outside:
        raise ValueError(f"rank {outside[0]} of the launch is in {process_set.mpi_comm}, but not in the world")
    return sorted(_launch.index(rank) for rank in ranks)


def _add(process_set: ProcessSet, ranks: list[int]) -> None:
    number = _native.set_add(ranks)
    process_set.process_set_id = number
    process_set.ranks = ranks
    _living.append(process_set)


def _taken(process_set: ProcessSet, ranks: list[int]) -> bool:
    """Returns whether a set of these ranks exists already; process_set then becomes another object for it.  Not collective."""
    for living in [global_process_set, *_living]:
        if living.ranks == ranks and ranks:
            process_set.process_set_id, process_set.ranks = living.process_set_id, ranks
            if process_set.process_set_id and process_set not in _living:
                _living.append(process_set)
            return True
    return False


def _add_communicator(process_set: ProcessSet, at_init: bool) -> None:
    """Each rank has its own communicator: all different ones become sets, and each rank keeps its own."""
    mine = _in_world(process_set)
    gathered = gather_bytes("process_set.communicators", (json.dumps(mine) + "\n").encode(), 0)
    lists = [json.loads(line) for line in gathered.decode().splitlines()]
    for ranks in sorted({tuple(ranks) for ranks in lists if ranks}):
        made = process_set if list(ranks) == mine else ProcessSet(ranks)
        if not (at_init and _taken(made, list(ranks))):
            _add(made, list(ranks))


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Makes a set and returns it.  All ranks call it, members or not, in the same order.

    ValueError if a set of these ranks exists, or a rank does not exist.  ValueError before init(), and without dynamic process
    sets.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if not _environment.flag("HOROVOD_DYNAMIC_PROCESS_SETS"):
        raise ValueError("HOROVOD_DYNAMIC_PROCESS_SETS is off: process sets can be given to init() only")
    if added.process_set_id is not None:
        raise ValueError(f"this process set exists already: {added}")
    return _added(added)


def _added(process_set: ProcessSet, at_init: bool = False) -> ProcessSet:
    if process_set.mpi_comm is not None:
        _add_communicator(process_set, at_init)
    elif not (at_init and _taken(process_set, list(process_set.ranks or []))):
        _add(process_set, list(process_set.ranks or []))
    return process_set


def add_at_init(process_sets: Iterable[ProcessSet], fresh: bool) -> None:
    """Makes the process sets that init() was given; fresh: in a new world.  An existing set is used unchanged.

    ValueError on ranks with a repeated set in their own list.  All other sets exist then.  So such a rank can call
    init() once more with another list, without the other ranks.
    """
    seen = {0: global_process_set}
    twice = []
    for process_set in process_sets:
        alone = process_set.mpi_comm is not None and not fresh  # in a new world, another rank's set may be new
        if not (alone and _taken(process_set, _in_world(process_set))):
            _added(process_set, at_init=True)
        first = seen.setdefault(process_set.process_set_id or 0, process_set)
        if first is not process_set:
            twice.append((process_set, first))
    for process_set, _ in twice:
        process_set.process_set_id = None
        _living[:] = [living for living in _living if living is not process_set]
    if twice:
        raise ValueError(f"init() was given a process set twice: {twice[0][0]} has the ranks of {twice[0][1]}")


def program_sets() -> list[ProcessSet]:
    """A process set for each program of the job (hvdrun -np 2 learner.py : -np 6 actor.py), in their order.

    All ranks call it.  A job of one program has only global_process_set.  ValueError before init(), and if the world does not
    contain all ranks of the job.
    """
    if not _size:
        raise ValueError("program_sets() needs the world: call hvd.init() first")
    sizes = [int(size) for size in _environment.text("HVD_PROGRAMS").split(",") if size]
    if len(sizes) < 2:
        return [global_process_set]
    if sum(sizes) != _size or _launch is not None:
        raise ValueError(f"the programs have {sum(sizes)} ranks, but this world has {_size}: give init() all of them")
    if any(process_set not in _living for process_set in _programs):
        _programs.clear()  # one was removed, on all ranks
    if not _programs:
        first = 0
        for size in sizes:
            _programs.append(_added(ProcessSet(range(first, first + size)), at_init=True))
            first += size
    return list(_programs)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set.  All ranks call it.  False when it was not added, or is the global one, which stays.

    Pending operations of the set end with an error.  TypeError for anything but a process set.
    """
    number = number_of(process_set)
    if not number:
        return False
    _native.set_remove(number)
    for living in [*_living, process_set]:
        if living.process_set_id == number:
            living.process_set_id = None
    _living[:] = [living for living in _living if living.process_set_id is not None]
    return True
