"""RayExecutor, with Horovod's arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Callable

import ray

from hvd.ray._adapter import Callback
from hvd.ray._elastic import ElasticParams
from hvd.ray._static import StaticParams

__all__ = ["MiniSettings", "RayExecutor"]


@dataclass
class MiniSettings:
    """Limits and interfaces of a job.  ssh_port and ssh_identity_file change nothing: hosts need no sshd."""

    nics: set[str] | None = None
    verbose: int = 1
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100
    elastic: bool = False
    discovery: Any = None

    @property
    def start_timeout(self) -> float:
        """Seconds for the start of the ranks."""
        return self.timeout_s


class RayExecutor:
    """Ranks in a Ray cluster: start(), then run() and execute() as often as needed, then shutdown().

    num_workers: ranks on as few nodes as possible.  Or num_hosts: nodes with num_workers_per_host ranks each.  Or min_workers
    and max_workers: limits of an elastic job. cpus_per_worker, gpus_per_worker: Ray's resources of a rank.
    use_current_placement_group: takes the slots from the placement group that this code runs in, if any.  reset_limit,
    cooldown_range, elastic_timeout: as hvdrun's options.  override_discovery: Ray's nodes are the elastic job's hosts;
    otherwise settings.discovery.find_available_hosts_and_slots() returns the hosts.

    Errors: ValueError for numbers that contradict each other.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100,
        nics: set[str] | None = None,
    ) -> MiniSettings:
        """timeout_s: for the start of the ranks; placement_group_timeout_s: for the slots; nics: network interfaces to use.

        ssh_str: text for the new file ssh_identity_file.
        """
        if ssh_str and ssh_identity_file and not os.path.exists(ssh_identity_file):
            with open(os.open(ssh_identity_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(ssh_str)
        return MiniSettings(
            nics=nics,
            ssh_identity_file=ssh_identity_file,
            timeout_s=timeout_s,
            placement_group_timeout_s=placement_group_timeout_s,
        )

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
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
    ) -> None:
        if max_workers and (not min_workers or min_workers <= 0):
            raise ValueError("`max_workers` provided without any positive `min_workers`: an elastic job needs both")
        if min_workers and num_workers:
            raise ValueError("Both `min_workers` and `num_workers` provided. A job is elastic, or its number of ranks is fixed")
        each: dict[str, Any] = {
            "cpus_per_worker": cpus_per_worker,
            "use_gpu": use_gpu,
            "gpus_per_worker": gpus_per_worker,
        }
        self.params: Any
        if min_workers is not None:
            self.params = ElasticParams(
                min_workers=min_workers,
                max_workers=max_workers,
                reset_limit=reset_limit,
                cooldown_range=cooldown_range,
                elastic_timeout=elastic_timeout,
                override_discovery=override_discovery,
                **each,
            )
        else:
            self.params = StaticParams(
                num_workers=num_workers,
                num_hosts=num_hosts,
                num_workers_per_host=num_workers_per_host,
                use_current_placement_group=use_current_placement_group,
                **each,
            )
        self.settings = settings
        self.settings.elastic = self.params.elastic
        self.adapter: Any = None
        self._is_remote = False

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: dict[str, Any] | None = None,
        extra_env_vars: dict[str, str] | None = None,
    ) -> None:
        """See Adapter.start().  Under Ray Client (ray://), an actor in the cluster takes the driver's place."""
        given = asdict(self.params)
        self._is_remote = ray.util.client.ray.is_connected()
        adapter = self.params.adapter
        if self._is_remote:
            self.adapter = ray.remote(num_cpus=0)(adapter).remote(self.settings, **given)
        else:
            self.adapter = adapter(self.settings, **given)
        self._call("start", executable_cls, executable_args, executable_kwargs, extra_env_vars)

    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callback] | None = None) -> list[Any]:
        """See Adapter.execute()."""
        return list(self._call("execute", fn, callbacks))

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        callbacks: list[Callback] | None = None,
    ) -> list[Any]:
        """See Adapter.run()."""
        return list(self._call("run", fn, args, kwargs, callbacks))

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """See Adapter.run_remote()."""
        return list(self._call("run_remote", fn, args, kwargs))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """See Adapter.execute_single()."""
        return self._call("execute_single", fn)

    def shutdown(self) -> None:
        """See Adapter.shutdown()."""
        if self.adapter is not None:
            self._call("shutdown")
            self.adapter = None

    def _call(self, method: str, *args: Any) -> Any:
        if self.adapter is None:
            raise RuntimeError("there are no ranks: call start() first")
        call = getattr(self.adapter, method)
        return ray.get(call.remote(*args)) if self._is_remote else call(*args)
