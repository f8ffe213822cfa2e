"""Finds the ranks of a new world that have the training's state, and gives it to rank 0 if needed."""

from __future__ import annotations

import os
from typing import Any

from hvd._elastic import state_file as _state_file
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world

_world_mark = b""  # of this rank's last world; rank 0 has drawn it


def give_to_rank_0(state: Any, has_it: bool, synchronized: bool) -> tuple[bool, bool]:
    """Returns whether this rank has the state now, and whether all ranks have the same.  Collective.

    synchronized: this rank has the state that all ranks of its last world had when it ended.  If a rank of the new world was
    not in that world, or has restored its commit, all ranks sync.
    Rank 0 may be new and lack the state.  The old rank 0 may have died while it sent the state to new ranks.  The case needs
    hosts with several ranks.  Then only ranks of other hosts have the state.  The first of them gives its last commit to rank
    0. Errors: RuntimeError on rank 0 if the script's own state class has no copy to give; the others continue.
    """
    global _world_mark
    mine = (has_it, _world_mark if synchronized else b"", os.urandom(8))
    told = [mine] if _world.size() == 1 else _objects.allgather_object(mine, "hvd.elastic.holders")
    found, marks, drawn = zip(*told)
    _world_mark = drawn[0]
    if found[0] or True not in found:
        return has_it, marks[0] != b"" and len(set(marks)) == 1
    holder = found.index(True)
    given = _objects.broadcast_object(_copy(state) if _world.rank() == holder else None, holder, "hvd.elastic.held")
    if _world.rank() == 0:
        if isinstance(given, str):
            raise RuntimeError(f"this new rank 0 needs the training's state of rank {holder}, which cannot give it: {given}")
        copy, state._commits = given
        state.use_saved_copy(copy)
        state.restore()
        has_it = True
    return has_it, False


def _copy(state: Any) -> tuple[Any, int] | str:
    """The copy, or the reason why a state class of the script has none."""
    try:
        _state_file.need_saved_copy(type(state))
        return state.saved_copy(), state._commits
    except NotImplementedError as error:
        return str(error)
