"""Divides the shares of the global batch among the ranks: hvd.elastic.run(keep_global_batch=True).  No framework.

The batch has as many shares as the first world had ranks.  All shares are divided among the present ranks.  Each rank
gets neighbouring shares, in the order of the ranks.  So the shares of all ranks together are in order.
"""

from __future__ import annotations

import sys

from hvd._runtime import environment as _environment
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world

_enabled = False
_kept = 0  # number of shares; 0: not decided yet


def enable(enabled: bool) -> None:
    """Notes the argument of the training function's decorator."""
    global _enabled
    _enabled = enabled


def is_kept() -> bool:
    """Returns whether the global batch keeps its size from the first world."""
    return _enabled and _kept > 0


def kept() -> int:
    """The number of shares; 0: the batch is not kept."""
    return _kept if _enabled else 0


def keep(count: int) -> None:
    """Sets the number of shares from an earlier run's state.  Without keep_global_batch the number is not used."""
    global _kept
    _kept = count


def refuse_reduction(what: str) -> None:
    """Raises RuntimeError if the batch is kept: this call averages over ranks, and some ranks may have more shares."""
    if is_kept():
        raise RuntimeError(
            f"keep_global_batch=True: {what} averages over ranks, not over shares of the batch; take the plain one, and "
            "GlobalBatch.mean() for the gradients (hvd-elastic(7))"
        )


def agree() -> None:
    """All ranks take rank 0's number of shares; at first this is the number of ranks.  Collective.

    Raises RuntimeError in a job of one fixed rank, if the state has several shares.  Such a job reduces no gradients.
    """
    if not _enabled:
        return
    keep(_objects.broadcast_object(_kept or _world.size(), 0, "hvd.elastic.shares"))
    if _world.size() == 1 < _kept and not _environment.flag("HOROVOD_ELASTIC"):
        raise RuntimeError(f"one rank goes on with a batch of {_kept} shares (keep_global_batch) as hvdrun --min-np 1 only")
    idle = _world.size() - _kept
    if idle > 0 and _world.rank() == 0:
        told = f"{_world.size()} ranks have a batch of {_kept} shares (keep_global_batch): {idle} of them compute nothing"
        print(f"hvd.elastic: {told}", file=sys.stderr, flush=True)


def count() -> int:
    """The number of shares of a global batch."""
    return kept() or _world.size()


def of_rank(rank: int, size: int, shares: int) -> range:
    """A rank's shares, in a world of that size.  Rank 0 has share 0."""
    return range(-(-shares * rank // size), -(-shares * (rank + 1) // size))


def mine() -> range:
    """This rank's shares."""
    return of_rank(_world.rank(), _world.size(), count())
