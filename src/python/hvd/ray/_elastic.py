"""Elastic jobs in Ray: hvdrun's hosts are Ray tasks, one for each host of the discovery."""

from __future__ import annotations

import pickle
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

import ray

from hvd._job.host_daemon import clean_environment, run_daemon
from hvd._job.payload import pickled_call
from hvd._job.results import Ranked, elastic_results
from hvd._job.run import command_words, ranks_environment
from hvd.ray import _link, _rank
from hvd.ray._adapter import Adapter, BaseParams, Callback
from hvd.ray._callbacks import passing_values
from hvd.ray._discovery import RayHostDiscovery, scheduling
from hvd.ray._job import Host, HostedJob

__all__ = ["ElasticAdapter", "ElasticParams"]

_NAME = "ray-"
_DISCOVER_SECONDS = 1.0
_AROUND_SECONDS = 60.0  # for the task that reports the ranks' environment


@dataclass
class ElasticParams(BaseParams):
    """Limits of an elastic job.  The fields are RayExecutor's arguments of the same names."""

    min_workers: int = 1
    max_workers: int | None = None
    reset_limit: int | None = None
    cooldown_range: Sequence[int] | None = None
    elastic_timeout: float = 600
    override_discovery: bool = True

    @property
    def elastic(self) -> bool:
        """True."""
        return True

    @property
    def adapter(self) -> type:
        """ElasticAdapter."""
        return ElasticAdapter


def run_host(link: str, script: str, queue: Any) -> str:
    """The task that holds a host's slots.  Runs the host's daemon to its end, and passes on the ranks' logged values."""
    listener = _link.Listener(link, lambda data: queue.put(pickle.loads(data)) if queue is not None else None)
    try:
        return run_daemon(script, [str(gpu) for gpu in ray.get_gpu_ids()])
    finally:
        listener.close()


def about() -> tuple[str, dict[str, str]]:
    """Returns a node's Python, and the ranks' environment."""
    return sys.executable, {**clean_environment(), "PYTHONPATH": ranks_environment()["PYTHONPATH"]}


class _Hosts(HostedJob):
    """The manifest follows the discovery."""

    def __init__(self, adapter: ElasticAdapter, environment: dict[str, str], link: str, queue: Any) -> None:
        self.adapter, self.link, self.queue = adapter, link, queue
        self.look_at = 0.0
        super().__init__({}, environment)

    def look(self) -> None:
        super().look()
        if time.monotonic() < self.look_at:
            return
        self.look_at = time.monotonic() + _DISCOVER_SECONDS
        left = self.adapter.max_workers or sys.maxsize
        slots: dict[str, int] = {}
        for host, count in self.adapter.settings.discovery.find_available_hosts_and_slots().items():
            if taken := min(count, left):
                slots[host], left = taken, left - taken
        if slots and slots != {name.removeprefix(_NAME): host.slots for name, host in self.hosts.items()}:
            self.hosts = {_NAME + host: Host(count, self._starter(host, count)) for host, count in slots.items()}
            self.tell_hosts()

    def wait_for_slots(self, count: int, seconds: float) -> None:
        """Waits until the hosts have `count` slots.  Errors: TimeoutError with the count and the slots found."""
        limit = time.monotonic() + seconds
        self.look()
        while (found := sum(host.slots for host in self.hosts.values())) < count:
            if time.monotonic() > limit:
                raise TimeoutError(f"the job needs {count} slots, and the cluster has {found} after {seconds:g} s")
            time.sleep(0.1)
            self.look()

    def _starter(self, host: str, slots: int) -> Callable[[str], Any]:
        cpus, gpus = self.adapter.resources
        options = {"num_cpus": cpus * slots, "num_gpus": gpus * slots, "max_retries": 0}
        link = f"{self.link}-{_NAME}{host}"

        def start(script: str) -> Any:
            where = scheduling(self.adapter.settings.discovery, host)
            return ray.remote(run_host).options(**options, **where).remote(link, script, self.queue)

        return start


class ElasticAdapter(Adapter):
    """Ranks that come and go with the cluster's nodes.  The ranks live for one run() or execute()."""

    def __init__(
        self,
        settings: Any,
        min_workers: int,
        max_workers: int | None = None,
        use_gpu: bool = False,
        cpus_per_worker: int = 1,
        gpus_per_worker: int | None = None,
        override_discovery: bool = True,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: float = 600,
    ) -> None:
        self.settings = settings
        if override_discovery:
            settings.discovery = RayHostDiscovery(use_gpu, cpus_per_worker, gpus_per_worker)
        self.min_workers, self.max_workers = min_workers, max_workers
        self.resources = cpus_per_worker, (gpus_per_worker or 1) * int(use_gpu)
        self.options = {"reset_limit": reset_limit, "cooldown_range": cooldown_range}
        self.elastic_timeout = elastic_timeout
        self.executable: _rank.Start | None = None
        self.variables: dict[str, str] = {}

    def _start(self, executable: _rank.Start | None, variables: dict[str, str]) -> None:
        self.executable, self.variables = executable, variables

    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callback] | None = None) -> list[Any]:
        """See Adapter.execute().  fn trains by hvd.elastic.run.  Returns the results of the last world's ranks."""
        link = uuid.uuid4().hex[:12]
        payload = pickled_call(Ranked(_rank.Elastic(link, fn, self.executable)), (), {})
        python, environment = ray.get(ray.remote(about).options(num_cpus=0).remote(), timeout=_AROUND_SECONDS)
        environment |= {**self.variables, "HOROVOD_ELASTIC_TIMEOUT": str(self.elastic_timeout)}
        words = command_words(
            {
                "num_proc": self.min_workers,
                "min_num_proc": self.min_workers,
                "max_num_proc": self.max_workers,
                "start_timeout": self.settings.timeout_s,
                "network_interfaces": sorted(self.settings.nics) if self.settings.nics else None,
                "verbose": self.settings.verbose > 1,
                "executable": python,
                **self.options,
            }
        )
        with passing_values(callbacks) as queue:
            job = _Hosts(self, environment, link, queue)
            try:
                job.wait_for_slots(self.min_workers, self.elastic_timeout)
            except BaseException:
                job.drop()
                raise
            job.run_job(payload, getattr(fn, "__name__", "function"), words, elastic_results)
        job.join()
        if job.failure is not None:
            raise job.failure
        return list(job.values)

    def _execute_remote(self, fn: Callable[[Any], Any]) -> list[Any]:
        raise NotImplementedError("the ranks of an elastic job come and go: call run(), or give num_workers")

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        raise NotImplementedError("the ranks of an elastic job come and go: call execute(), or give num_workers")

    def shutdown(self) -> None:
        """Does nothing, because the ranks have ended with run()."""
