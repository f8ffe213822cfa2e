"""StaticAdapter: a fixed number of ranks, which run one call after the other."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

import ray
from ray.util.placement_group import get_current_placement_group

from hvd._job.agents import natural
from hvd._job.payload import pickled_call
from hvd._job.run import command_words
from hvd.ray import _rank
from hvd.ray._adapter import Adapter, BaseParams, Callback
from hvd.ray._callbacks import passing_values
from hvd.ray._job import Host, HostedJob, RunningJob, say
from hvd.ray._strategy import BaseStrategy, ColocatedStrategy, PGStrategy

__all__ = ["StaticAdapter", "StaticParams"]

_MORE_SECONDS = 15.0  # hvdrun's own limit for the start comes first, with the reason


@dataclass
class StaticParams(BaseParams):
    """The number of ranks, and their nodes.  The fields are RayExecutor's arguments of the same names."""

    num_workers: int | None = None
    num_hosts: int | None = None
    num_workers_per_host: int = 1
    use_current_placement_group: bool = True

    @property
    def elastic(self) -> bool:
        """False."""
        return False

    @property
    def adapter(self) -> type:
        """StaticAdapter."""
        return StaticAdapter


class StaticAdapter(Adapter):
    """A fixed number of ranks.  workers: an actor for each rank, in the order of the ranks."""

    def __init__(
        self,
        settings: Any,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
    ) -> None:
        if num_workers is not None and num_hosts is not None:
            raise ValueError("num_workers and num_hosts are both given: num_hosts goes with num_workers_per_host")
        if not num_workers and not num_hosts:
            raise ValueError("how many ranks? Give num_workers, or num_hosts and num_workers_per_host")
        self.settings = settings
        self.num_workers, self.num_hosts, self.num_workers_per_host = num_workers, num_hosts, num_workers_per_host
        self.each = {"cpus_per_worker": cpus_per_worker, "use_gpu": use_gpu, "gpus_per_worker": gpus_per_worker}
        self.use_current_placement_group = use_current_placement_group
        self.workers: list[Any] = []
        self.strategy: BaseStrategy | None = None
        self.running: RunningJob | None = None

    def _create_strategy(self) -> BaseStrategy:
        each: dict[str, Any] = {"settings": self.settings, **self.each}
        inherits = self.use_current_placement_group and get_current_placement_group() is not None
        if self.num_hosts and not inherits:
            return ColocatedStrategy(num_hosts=self.num_hosts, num_workers_per_host=self.num_workers_per_host, **each)
        ranks = self.num_workers or self.num_workers_per_host * (self.num_hosts or 1)
        return PGStrategy(num_workers=ranks, force_create_placement_group=not self.use_current_placement_group, **each)

    def _start(self, executable: _rank.Start | None, variables: dict[str, str]) -> None:
        if self.running is not None:
            raise RuntimeError("the job runs: call shutdown() first")
        self.strategy = self._create_strategy()
        try:
            self.workers, _ = self.strategy.create_workers()
            self._start_ranks(variables)
            if executable is not None:
                self._values([worker.start_executable.remote(*executable) for worker in self.workers])
        except BaseException:
            self.shutdown()
            raise

    def _start_ranks(self, variables: dict[str, str]) -> None:
        link = uuid.uuid4().hex[:12]
        ray.get([worker.listen.remote(f"{link}-{rank}") for rank, worker in enumerate(self.workers)])
        about = ray.get([worker.about.remote() for worker in self.workers])
        hosts, holds = self._hosts(about)
        listed = ", ".join(f"{name} ×{host.slots}" for name, host in hosts.items())
        say(f"{len(self.workers)} rank{'s' * (len(self.workers) != 1)} start on {listed}")
        words = command_words(
            {
                "num_proc": len(self.workers),
                "start_timeout": self.settings.timeout_s,
                "network_interfaces": sorted(self.settings.nics) if self.settings.nics else None,
                "verbose": self.settings.verbose > 1,
                "executable": about[0]["python"],
            }
        )
        payload = pickled_call(_rank.Serving(link), (), {})
        job = HostedJob(hosts, {**about[0]["environment"], **variables}, holds)
        self.running = RunningJob(job, payload, "RayExecutor", words)
        waiting = [worker.wait_for_rank.remote() for worker in self.workers]
        self.running.wait_for(waiting, self.settings.timeout_s + _MORE_SECONDS)

    def _hosts(self, about: list[dict[str, Any]]) -> tuple[dict[str, Host], dict[Any, str]]:
        """The nodes as hvdrun's hosts, and HostedJob's holds of the actors that run no daemon.

        A host is called "ray-" and the host's name, with a number where nodes share a machine.
        """
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
        hosts: dict[str, Host] = {}
        holds: dict[Any, str] = {}
        for node in dict.fromkeys(each["node"] for each in about):
            own = [rank for rank, each in enumerate(about) if each["node"] == node]
            gpus = natural({gpu for rank in own for gpu in about[rank]["gpus"]})
            name = f"ray-{names.get(node, node)}"
            if name in hosts:
                name += f"-{len(hosts)}"
            run = self.workers[own[0]].run_daemon.remote
            hosts[name] = Host(len(own), lambda script, run=run, gpus=gpus: run(script, gpus), gpus)  # type: ignore[misc]
            holds |= {self.workers[rank].hold.remote(): f"rank {rank} on {name}" for rank in own[1:]}
        return hosts, holds

    def _values(self, references: list[Any]) -> list[Any]:
        """The calls' results.  Errors: JobError after a rank's failure."""
        try:
            return list(ray.get(references))
        except KeyboardInterrupt:
            self.shutdown()
            raise
        except Exception as error:
            if self.running is None:
                raise
            raise self.running.failure_after(error) from error

    def _calls(self, function: Callable[[Any], Any], workers: Sequence[Any] | None = None) -> list[Any]:
        if self.running is None:
            raise RuntimeError("there are no ranks: call start() first")
        payload = ray.put(pickled_call(_rank.execute, (function,), {}))
        return [worker.call.remote(payload) for worker in workers or self.workers]

    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callback] | None = None) -> list[Any]:
        with passing_values(callbacks, self.workers):
            return self._values(self._calls(fn))

    def _execute_remote(self, fn: Callable[[Any], Any]) -> list[Any]:
        return self._calls(fn)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        return self._values(self._calls(fn, self.workers[:1]))[0]

    def shutdown(self) -> None:
        if self.running is not None:
            for worker in self.workers:
                worker.release.remote()
            self.running.end()
            self.running = None
        if self.strategy is not None:
            self.strategy.shutdown()
            self.strategy = None
        self.workers = []
