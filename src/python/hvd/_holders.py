"""Which ranks of a new world have the training's state, that rank 0 is one of them, and whether it must be given round."""

from __future__ import annotations

import os
from typing import Any

from hvd import _objects, _state_file, _world

_world_mark = b""  # of the last world that this rank was in: rank 0 has drawn it


def give_to_rank_0(state: Any, has_it: bool, synchronized: bool) -> tuple[bool, bool]:
    """Whether this rank has the state now, and whether all have the same.  Collective.

    synchronized: this rank has what the others of its last world had when that ended.  One that was not in it, or has
    gone back to its commit, may have come to this one all the same: then all sync.
    Rank 0 may be new: where hosts have several ranks, it stands where the one before died while it gave the state to the
    new ones, and only ranks of other hosts have it.  Then the first of these gives its last commit to rank 0.
    Errors: RuntimeError on rank 0 where the state, of the script's own, has no copy to give; the others go on.
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
    """Why there is none, of a state of the script's own."""
    try:
        _state_file.need_saved_copy(type(state))
        return state.saved_copy(), state._commits
    except NotImplementedError as error:
        return str(error)
