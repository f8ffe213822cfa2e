"""An estimator's data for its ranks.  This module does not import pyspark, which ranks may lack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hvd.spark.ml.shard import Shard
from hvd.spark.store import Store


@dataclass
class Training:
    """The data for every rank, pickled once."""

    store: Store
    run_id: str
    features: list[str]
    labels: list[str]
    weight: str | None
    validates: bool
    settings: dict[str, Any]  # the parameters with plain values
    work: Any  # the framework's own data: model, optimizer, loss, metrics
    train_path: str = ""
    val_path: str = ""

    def columns(self) -> list[str]:
        """All columns that a rank reads, each once."""
        return list(dict.fromkeys([*self.features, *self.labels, *([self.weight] if self.weight else [])]))

    def shards(self, hvd: Any) -> tuple[Shard, Shard | None]:
        """This rank's rows for training, and for validation if there is one."""

        def shard(path: str) -> Shard:
            return Shard(
                self.store,
                path,
                self.columns(),
                hvd.rank(),
                hvd.size(),
                self.settings["shuffle_buffer_size"] or None,
                self.settings["transformation_fn"],
            )

        return shard(self.train_path), shard(self.val_path) if self.validates else None

    def shuffles(self) -> bool:
        """Returns whether ranks shuffle their rows."""
        return bool(self.settings["shuffle"]) and self.settings["shuffle_buffer_size"] != 0

    def order(self, rank: int, epoch: int) -> Any:
        """The random generator of a rank's order in an epoch: the same again after a restart from the checkpoint."""
        import numpy

        seed = self.settings["random_seed"]
        return numpy.random.default_rng(None if seed is None else [int(seed), rank, epoch])


def begin(settings: dict[str, Any]) -> None:
    """Prepares a rank, before anything else."""
    if method := settings["mp_start_method"]:
        import multiprocessing

        multiprocessing.set_start_method(method, force=True)


def of_rows(shape: Any) -> tuple[int, ...]:
    """A shape for reshape() of many rows: a shape without -1 describes one row."""
    return tuple(shape) if -1 in shape else (-1, *shape)


def steps_of(shard: Shard, batch_size: int, asked: int | None, hvd: Any) -> int:
    """Steps of an epoch, the same on all ranks: `asked`, else the steps of the rank with most rows.

    Without a transformation all ranks have the same number of rows; a transformation may change that.
    """
    if asked is not None:
        return asked
    rows = shard.rows if shard.transformation is None else max(hvd.allgather_object(shard.count(), name="hvd.spark.rows"))
    return max(1, -(-rows // batch_size))
