"""The nodes of the cluster as hosts of an elastic job."""

from __future__ import annotations

import random
import time
from typing import Any

import ray

__all__ = ["ChangingDiscovery", "RayHostDiscovery"]


class RayHostDiscovery:
    """Ray's living nodes, with as many slots as the node's resources give.

    A host's name is the node's address.  If two living nodes share an address, the second node's id is its name.
    nodes: node ids by host, as of the last call.
    """

    def __init__(self, use_gpu: bool = False, cpus_per_worker: int = 1, gpus_per_worker: int | None = 1) -> None:
        self.use_gpu, self.cpus_per_worker, self.gpus_per_worker = use_gpu, cpus_per_worker, gpus_per_worker or 1
        self.nodes: dict[str, str] = {}

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Host → slots, without hosts that have none."""
        alive = {node.get("NodeID", node["NodeManagerAddress"]): node for node in ray.nodes() if node["alive"]}
        self.nodes = {host: node for host, node in self.nodes.items() if node in alive}
        for node, about in alive.items():
            address = about["NodeManagerAddress"]
            if node not in self.nodes.values():
                self.nodes[node if address in self.nodes else address] = node
        slots = {host: self._slots(alive[node]["Resources"]) for host, node in self.nodes.items()}
        return {host: count for host, count in slots.items() if count}

    def _slots(self, resources: dict[str, float]) -> int:
        slots = resources.get("CPU", 0) // self.cpus_per_worker if self.cpus_per_worker else float("inf")
        if self.use_gpu:
            slots = min(slots, resources.get("GPU", 0) // self.gpus_per_worker)
        return int(slots)


class ChangingDiscovery(RayHostDiscovery):
    """For tests of elastic programs: takes a host away or gives one back, every change_frequency_s seconds."""

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_worker: int = 1,
        gpus_per_worker: int | None = 1,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker)
        if not _graceful:
            raise ValueError("_graceful=False would shut machines down: end a node yourself (ray stop)")
        self.min_hosts, self.max_hosts, self.change_frequency_s = min_hosts, max_hosts, change_frequency_s
        self.verbose = verbose
        self.removed: set[str] = set()
        self.changed: float | None = None

    def add_host(self, hosts: dict[str, int]) -> None:
        """Gives one of the removed hosts back."""
        if there := sorted(self.removed & hosts.keys()):
            self.removed.remove(random.choice(there))

    def remove_host(self, hosts: dict[str, int]) -> None:
        """Takes one host away."""
        if there := sorted(hosts.keys() - self.removed):
            self.removed.add(random.choice(there))

    def change_hosts(self, hosts: dict[str, int]) -> None:
        """One change, within min_hosts and max_hosts."""
        self.removed &= hosts.keys()
        count = len(hosts) - len(self.removed)
        adds = count <= self.min_hosts or (count < self.max_hosts and random.random() < 0.5)
        (self.add_host if adds else self.remove_host)(hosts)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        hosts = super().find_available_hosts_and_slots()
        now = time.monotonic()
        if self.changed is None or now - self.changed >= self.change_frequency_s:
            if self.changed is not None:
                self.change_hosts(hosts)
            self.changed = now
        left = {host: slots for host, slots in hosts.items() if host not in self.removed}
        if self.verbose:
            print(f"{len(left)} of {len(hosts)} hosts are there: {left}")
        return left


def scheduling(discovery: Any, host: str) -> dict[str, Any]:
    """Ray's options for a task on a host of the discovery.  host: an address, or a node's id."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    known = {node["NodeID"]: node["NodeID"] for node in ray.nodes()}
    if isinstance(discovery, RayHostDiscovery):
        known |= discovery.nodes
    if host in known:
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(known[host], soft=False)}
    return {"resources": {f"node:{host}": 0.01}}
