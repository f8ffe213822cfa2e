"""Placement of a job's slots in the cluster."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.placement_group import get_current_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hvd.ray._worker import Slot

__all__ = ["BaseStrategy", "ColocatedStrategy", "PGStrategy", "create_placement_group"]

# Threads of an actor for the daemon, the hold, the wait for its rank, and the release.
_THREADS = {"hvd": 4}


def create_placement_group(
    resources_per_bundle: dict[str, float], num_bundles: int, pg_timeout: float, pg_strategy: str
) -> tuple[Any, list[dict[str, float]]]:
    """A placement group of equal bundles, ready for use, and the bundles.  Errors: TimeoutError after pg_timeout seconds."""
    bundles = [dict(resources_per_bundle) for _ in range(num_bundles)]
    group = placement_group(bundles, strategy=pg_strategy)
    ready, _ = ray.wait([group.ready()], timeout=pg_timeout)
    if not ready:
        remove_placement_group(group)
        raise TimeoutError(
            f"the cluster has no room for {num_bundles} × {resources_per_bundle} ({pg_strategy}) within {pg_timeout:g} s: "
            f"now free is {ray.available_resources()}. Ask for fewer workers, or wait longer "
            "(create_settings(placement_group_timeout_s=...))"
        )
    return group, bundles


class BaseStrategy:
    """Makes an actor for each rank in a placement group."""

    def __init__(self, settings: Any, use_gpu: bool, cpus_per_worker: int, gpus_per_worker: int | None) -> None:
        self.settings = settings
        self.resources: dict[str, float] = {"CPU": cpus_per_worker}
        if use_gpu:
            self.resources["GPU"] = gpus_per_worker or 1
        self.placement_group: Any = None
        self._created_placement_group = True
        self.workers: list[Any] = []

    @property
    def num_workers(self) -> int:
        """The number of ranks."""
        raise NotImplementedError

    def create_workers(self) -> tuple[list[Any], list[Any]]:
        """The actors of all ranks, those of a node in succession, and the first actor of each node."""
        raise NotImplementedError

    def _actors(self, bundles: list[int]) -> tuple[list[Any], list[Any]]:
        """Actors in these bundles; -1: in any."""
        actor = ray.remote(concurrency_groups=_THREADS)(Slot)
        for rank, bundle in enumerate(bundles):
            where = PlacementGroupSchedulingStrategy(self.placement_group, bundle, placement_group_capture_child_tasks=False)
            options = {
                "num_cpus": self.resources["CPU"],
                "num_gpus": self.resources.get("GPU", 0),
                "scheduling_strategy": where,
            }
            self.workers.append(actor.options(**options).remote(rank, len(bundles)))
        nodes = [worker.node_id.remote() for worker in self.workers]
        limit = self.settings.placement_group_timeout_s
        ready, _ = ray.wait(nodes, num_returns=len(nodes), timeout=limit)
        if len(ready) < len(nodes):
            raise TimeoutError(f"only {len(ready)} of {len(nodes)} Ray actors started within {limit:g} s")
        node_of = dict(zip(self.workers, ray.get(nodes)))
        order = {node: place for place, node in reversed(list(enumerate(node_of.values())))}
        self.workers.sort(key=lambda worker: order[node_of[worker]])
        return self.workers, self.get_node_workers(self.workers)

    def get_node_workers(self, workers: list[Any]) -> list[Any]:
        """The first actor of each node."""
        nodes = ray.get([worker.node_id.remote() for worker in workers])
        return list(dict(list(zip(nodes, workers))[::-1]).values())[::-1]

    def shutdown(self) -> None:
        """Ends the actors, and removes the group if it was made here."""
        for worker in self.workers:
            ray.kill(worker)
        self.workers = []
        if self.placement_group is not None and self._created_placement_group:
            remove_placement_group(self.placement_group)
        self.placement_group = None


class ColocatedStrategy(BaseStrategy):
    """Places the same number of ranks on each of num_hosts nodes."""

    def __init__(
        self,
        settings: Any,
        num_hosts: int,
        num_workers_per_host: int,
        use_gpu: bool,
        cpus_per_worker: int,
        gpus_per_worker: int | None,
    ) -> None:
        super().__init__(settings, use_gpu, cpus_per_worker, gpus_per_worker)
        self.num_hosts, self.num_workers_per_host = num_hosts, num_workers_per_host

    @property
    def num_workers(self) -> int:
        return self.num_hosts * self.num_workers_per_host

    def create_workers(self) -> tuple[list[Any], list[Any]]:
        each = {name: amount * self.num_workers_per_host for name, amount in self.resources.items()}
        limit = self.settings.placement_group_timeout_s
        self.placement_group, _ = create_placement_group(each, self.num_hosts, limit, "STRICT_SPREAD")
        return self._actors([bundle for bundle in range(self.num_hosts) for _ in range(self.num_workers_per_host)])


class PGStrategy(BaseStrategy):
    """num_workers ranks on as few nodes as possible, or in a placement group that exists."""

    def __init__(
        self,
        settings: Any,
        num_workers: int,
        use_gpu: bool,
        cpus_per_worker: int,
        gpus_per_worker: int | None,
        placement_group: Any = None,
        force_create_placement_group: bool = False,
    ) -> None:
        super().__init__(settings, use_gpu, cpus_per_worker, gpus_per_worker)
        self._num_workers = num_workers
        if not force_create_placement_group:
            self.placement_group = placement_group or get_current_placement_group()
        self._created_placement_group = self.placement_group is None

    @property
    def num_workers(self) -> int:
        return self._num_workers

    def resources_per_worker(self) -> dict[str, float]:
        """Ray's resources of a rank."""
        return dict(self.resources)

    def create_workers(self) -> tuple[list[Any], list[Any]]:
        if not self._created_placement_group:
            return self._actors([-1] * self._num_workers)
        limit = self.settings.placement_group_timeout_s
        self.placement_group, _ = create_placement_group(self.resources, self._num_workers, limit, "PACK")
        return self._actors(list(range(self._num_workers)))
