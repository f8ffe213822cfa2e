"""horovod.common.basics: this rank's place."""

from __future__ import annotations

from hvd import process_sets as _sets
from hvd._runtime import world as _world
from hvd._runtime.world import *  # noqa: F403 -- the queries that it lists
from hvd._runtime.world import __all__ as _queries

__all__ = [
    *_queries,
    "HorovodBasics",
]


class HorovodBasics:
    """The base of Horovod's framework packages; its methods are this module's functions."""

    Average, Sum, Adasum, Min, Max, Product = range(6)

    def __init__(self, *_: str) -> None:
        """Horovod's constructor takes the path of its compiled library, which is ignored here."""

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        # Horovod's tests look at the numbers.
        return {0: list(range(_world.size())), **_sets.ranks_by_id()}


for _name in _queries:
    setattr(HorovodBasics, _name, staticmethod(globals()[_name]))
