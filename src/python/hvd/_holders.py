"""Which ranks of a new world have the training's state, and that rank 0 is one of them."""

from __future__ import annotations

from typing import Any

from hvd import _objects, _state_file, _world


def give_to_rank_0(state: Any, has_it: bool) -> bool:
    """Whether this rank has the state now.  Collective.

    Rank 0 may be new: where hosts have several ranks, it stands where the one before died while it gave the state to the
    new ones, and only ranks of other hosts have it.  Then the first of these gives its last commit to rank 0.
    Errors: RuntimeError on rank 0 where the state, of the script's own, has no copy to give; the others go on.
    """
    if _world.size() == 1:
        return has_it
    found = _objects.allgather_object(has_it, "hvd.elastic.holders")
    if found[0] or True not in found:
        return has_it
    holder = found.index(True)
    given = _objects.broadcast_object(_copy(state) if _world.rank() == holder else None, holder, "hvd.elastic.held")
    if _world.rank() == 0:
        if isinstance(given, str):
            raise RuntimeError(f"this new rank 0 needs the training's state of rank {holder}, which cannot give it: {given}")
        copy, state._commits = given
        state.use_saved_copy(copy)
        state.restore()
        return True
    return has_it


def _copy(state: Any) -> tuple[Any, int] | str:
    """Why there is none, of a state of the script's own."""
    try:
        _state_file.need_saved_copy(type(state))
        return state.saved_copy(), state._commits
    except NotImplementedError as error:
        return str(error)
