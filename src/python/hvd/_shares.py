"""Who computes which share of the batch of all ranks: hvd.elastic.run(keep_global_batch=True).  No framework.

That batch is made of as many shares as the first world had ranks.  The ranks that there are now are dealt all of them, each
a run of neighbours, in the order of the ranks: so what all ranks have, one after the other, is in the order of the shares.
"""

from __future__ import annotations

import sys

from hvd import _environment, _objects, _world

_enabled = False
_kept = 0  # how many shares; 0: nobody has said so yet


def enable(enabled: bool) -> None:
    """What the training function that begins now was decorated with."""
    global _enabled
    _enabled = enabled


def is_kept() -> bool:
    """Whether the batch of all ranks stays as it was in the first world."""
    return _enabled and _kept > 0


def kept() -> int:
    """How many shares there are; 0: the batch is not kept."""
    return _kept if _enabled else 0


def keep(count: int) -> None:
    """As a state from an earlier run has it.  Counts once enabled."""
    global _kept
    _kept = count


def refuse_reduction(what: str) -> None:
    """RuntimeError where the batch is kept: this makes the mean over ranks, of which some may have more shares."""
    if is_kept():
        raise RuntimeError(
            f"keep_global_batch=True: {what} averages over ranks, not over shares of the batch; take the plain one, and "
            "GlobalBatch.mean() for the gradients (hvd-elastic(7))"
        )


def agree() -> None:
    """Rank 0's number of shares is everybody's; at first the number of ranks.  Collective.

    RuntimeError where that comes from a state that a fixed job of one rank, which reduces no gradients, cannot take over.
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
    """How many shares a batch of all ranks has."""
    return kept() or _world.size()


def of_rank(rank: int, size: int, shares: int) -> range:
    """A rank's shares, in a world of that size.  Rank 0 has share 0."""
    return range(-(-shares * rank // size), -(-shares * (rank + 1) // size))


def mine() -> range:
    """This rank's shares."""
    return of_rank(_world.rank(), _world.size(), count())
