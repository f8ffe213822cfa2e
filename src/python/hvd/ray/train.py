"""hvd.ray.train: Ray Train over hvd's collectives.

    TorchTrainer(train, torch_config=HvdConfig(), scaling_config=ScalingConfig(num_workers=4)).fit()

Ray Train's workers are the ranks, so reports, checkpoints, data shards and restarts are Ray's.  The ranks meet as torchrun's
do, through torch's store.  Needs torch and `pip install "ray[train]"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.train.torch import TorchConfig

from hvd._runtime import environment as _environment

__all__ = ["HvdConfig"]


def _prepare(number: int, size: int) -> None:
    """Runs on a worker.  Sets the variables that the ranks' meeting needs besides Ray's own, and registers the backend with
    torch."""
    import hvd.torch  # noqa: F401

    _environment.whole.update({"RANK": str(number), "WORLD_SIZE": str(size)})


class _Backend(TorchConfig().backend_cls):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        size = len(worker_group)
        ray.get([worker_group.execute_single_async(rank, _prepare, number=rank, size=size) for rank in range(size)])
        super().on_start(worker_group, backend_config)


@dataclass
class HvdConfig(TorchConfig):  # type: ignore[misc]
    """For TorchTrainer(torch_config=...): the workers' process group is "hvd".

    The training function may also call hvd.init(): it joins the same ranks.
    backend: also "cpu:hvd,cuda:nccl".  Errors: ValueError for another init_method than "env".
    """

    backend: str | None = "hvd"

    def __post_init__(self) -> None:
        if self.init_method != "env":
            raise ValueError(f"init_method is {self.init_method!r}: the ranks of hvd need 'env'")

    @property
    def backend_cls(self) -> type:
        """The process group's start and end on Ray's workers."""
        return _Backend
