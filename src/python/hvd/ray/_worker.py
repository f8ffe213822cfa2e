"""The Ray actors that hold the slots of ranks."""

from __future__ import annotations

import pickle
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any, Callable

import ray

from hvd._job.host_daemon import clean_environment, run_daemon
from hvd._job.payload import pickled_call
from hvd._job.run import ranks_environment
from hvd._runtime import environment as _environment
from hvd.ray import _link, _rank, ray_logger

__all__ = ["BaseHorovodWorker", "Slot"]

_beside_calls: Any = ray.method(concurrency_group="hvd")  # in threads of their own


class BaseHorovodWorker:
    """A Ray actor with Horovod's methods, which calls functions in the actor itself.  Slot calls them in its rank."""

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        self.update_env_vars({"HOROVOD_HOSTNAME": self.hostname(), "HOROVOD_RANK": world_rank, "HOROVOD_SIZE": world_size})

    def node_id(self) -> str:
        """Ray's id of the node."""
        return str(ray.get_runtime_context().get_node_id())

    def hostname(self) -> str:
        """The host's name."""
        return socket.gethostname()

    def get_gpu_ids(self) -> list[int]:
        """The GPUs that Ray gave this actor."""
        return list(ray.get_gpu_ids())

    def update_env_vars(self, env_vars: dict[str, Any]) -> None:
        """Sets environment variables; values become text."""
        _environment.whole.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """All environment variables."""
        return dict(_environment.whole)

    def start_executable(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Makes the object that execute() hands to its functions."""
        if executable_cls is not None:
            self._make(executable_cls, executable_args or (), executable_kwargs or {})

    def _make(self, cls: type, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.executable = cls(*args, **kwargs)

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """The result of func(executable)."""
        return func(self.executable)

    def set_queue(self, queue: Any) -> None:
        """The Ray queue that gets the values of ray_logger.log()."""
        ray_logger.configure(queue)


class Slot(BaseHorovodWorker):
    """Holds one rank's slot, and passes calls to the rank.  The first actor on a node also runs hvdrun's daemon there."""

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        self.listener: _link.Listener | None = None
        self.released = threading.Event()
        self.queue: Any = None

    def about(self) -> dict[str, Any]:
        """The node, its GPUs for this actor, and the environment of ranks on it."""
        path = ranks_environment()["PYTHONPATH"]
        return {
            "node": self.node_id(),
            "gpus": [str(gpu) for gpu in ray.get_gpu_ids()],
            "python": sys.executable,
            "environment": {**clean_environment(), "PYTHONPATH": path},
        }

    def listen(self, link: str) -> None:
        """Lets this slot's rank connect."""
        self.listener = _link.Listener(link, self._log)

    def _log(self, data: bytes) -> None:
        if self.queue is not None:
            self.queue.put(pickle.loads(data))

    @_beside_calls  # type: ignore[untyped-decorator]
    def run_daemon(self, script: str, gpus: list[str]) -> str:
        """Runs the node's daemon to its end; returns the failure, if any."""
        return run_daemon(script, gpus)

    @_beside_calls  # type: ignore[untyped-decorator]
    def wait_for_rank(self) -> None:
        """Waits for the rank's connection; the driver limits the time."""
        assert self.listener is not None
        self.listener.arrived.wait()

    @_beside_calls  # type: ignore[untyped-decorator]
    def hold(self) -> None:
        """Returns after release().  The death of this process ends the call too, with Ray's reason."""
        self.released.wait()

    @_beside_calls  # type: ignore[untyped-decorator]
    def release(self) -> None:
        """Lets the rank end."""
        self.released.set()
        if self.listener is not None:
            self.listener.close()

    def call(self, payload: bytes) -> Any:
        """The rank's result of a pickled call.  Raises the rank's exception; RuntimeError when the rank has ended."""
        answer = self.listener.call(payload) if self.listener is not None else None
        if answer is None:
            raise RuntimeError("this rank has ended with its job: the driver's output tells the first failure")
        kind, data = answer
        value = pickle.loads(data)
        if kind == _link.FAILURE:
            raise value
        return value

    def _on_rank(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.call(pickled_call(function, args, {}))

    def update_env_vars(self, env_vars: dict[str, Any]) -> None:
        self._on_rank(_rank.set_variables, {name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        return dict(self._on_rank(_rank.get_variables))

    def _make(self, cls: type, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._on_rank(_rank.start_executable, cls, args, kwargs)

    def execute(self, func: Callable[[Any], Any]) -> Any:
        return self._on_rank(_rank.execute, func)

    def set_queue(self, queue: Any) -> None:
        self.queue = queue
