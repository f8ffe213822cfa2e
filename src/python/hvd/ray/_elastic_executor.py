"""ElasticRayExecutor: Horovod's older interface to elastic jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hvd.ray._adapter import Callback, check_gpus
from hvd.ray._elastic import ElasticAdapter
from hvd.ray._executor import MiniSettings

__all__ = ["ElasticRayExecutor", "ElasticSettings"]


class ElasticSettings(MiniSettings):
    """MiniSettings with the limits of an elastic job."""

    min_num_proc: int = 1
    max_num_proc: int | None = None
    reset_limit: int | None = None
    elastic_timeout: float = 600


class ElasticRayExecutor:
    """Runs a function on ranks that come and go with the cluster's nodes: start(), then run().

    cpus_per_slot, gpus_per_slot: Ray's resources of a rank; env_vars: for the ranks; override_discovery: as RayExecutor's.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: float = 600,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        nics: set[str] | None = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """The limits.  min_np, max_np: older names of min_num_proc and max_num_proc; kwargs: fields of the settings."""
        settings = ElasticSettings(nics=nics, timeout_s=timeout_s, ssh_identity_file=ssh_identity_file, elastic=True)
        settings.min_num_proc = min_np if min_np is not None else min_num_proc
        settings.max_num_proc = max_np if max_np is not None else max_num_proc
        settings.reset_limit, settings.elastic_timeout = reset_limit, elastic_timeout
        for name, value in kwargs.items():
            setattr(settings, name, value)
        return settings

    def __init__(
        self,
        settings: Any,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: dict[str, str] | None = None,
        override_discovery: bool = True,
    ) -> None:
        check_gpus(use_gpu, gpus_per_slot, "gpus_per_slot")
        self.settings, self.env_vars = settings, env_vars
        self.adapter = ElasticAdapter(
            settings,
            settings.min_num_proc,
            settings.max_num_proc,
            use_gpu,
            cpus_per_slot,
            gpus_per_slot,
            override_discovery,
            settings.reset_limit,
            getattr(settings, "cooldown_range", None),
            settings.elastic_timeout,
        )

    def start(self) -> None:
        """Sets the ranks' environment."""
        self.adapter.start(extra_env_vars=self.env_vars)

    def run(self, worker_fn: Callable[[], Any], callbacks: list[Callback] | None = None) -> list[Any]:
        """Calls worker_fn() on every rank; it trains by hvd.elastic.run.  Results and errors as for RayExecutor.run()."""
        return self.adapter.run(worker_fn, callbacks=callbacks)
