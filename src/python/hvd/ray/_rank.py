"""The program that hvdrun's ranks run in a Ray job."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Callable

from hvd._runtime import environment as _environment
from hvd.ray import _link, ray_logger

Start = tuple[Any, Sequence[Any], dict[str, Any]]  # a class and its arguments, as of start(executable_cls=...)


def _dumps(value: Any) -> bytes:
    import cloudpickle

    return bytes(cloudpickle.dumps(value))


class Serving:
    """A rank that runs the calls of a RayExecutor, one after the other, until the executor shuts down."""

    __name__ = "RayExecutor"

    def __init__(self, link: str) -> None:
        self.link = link
        self.executable: Any = None

    def __call__(self) -> None:
        connection = _link.connect(f"{self.link}-{_environment.integer('HOROVOD_RANK')}")
        ray_logger.configure(connection)
        while (message := connection.receive()) is not None:
            function, args, kwargs = pickle.loads(message[1])
            try:
                connection.send(_link.ANSWER, _dumps(function(self, *args, **kwargs)))
            except BaseException as error:
                connection.send(_link.FAILURE, _failure(error))
                raise  # hvdrun reports the first failure, and ends the other ranks


def _failure(error: BaseException) -> bytes:
    if isinstance(error, Exception):
        try:
            data = _dumps(error)
            pickle.loads(data)
            return data
        except Exception:  # an object's own methods may raise anything
            pass
    return _dumps(RuntimeError(f"{type(error).__name__}: {error}"))


# ---- calls of a serving rank; `rank` is the Serving -----------------------------------------------------------------


def set_variables(rank: Serving, variables: dict[str, str]) -> None:
    """Sets environment variables."""
    _environment.whole.update(variables)


def get_variables(rank: Serving) -> dict[str, str]:
    """All environment variables."""
    return dict(_environment.whole)


def start_executable(rank: Serving, cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Makes the object that later calls get."""
    rank.executable = cls(*args, **kwargs)


def execute(rank: Serving, function: Callable[[Any], Any]) -> Any:
    """Calls the function with the executable."""
    return function(rank.executable)


# ---- elastic ---------------------------------------------------------------------------------------------------------


class Elastic:
    """The function of an elastic job's ranks."""

    def __init__(self, link: str, function: Callable[[Any], Any], start: Start | None) -> None:
        self.link, self.function, self.start = link, function, start
        self.__name__ = getattr(function, "__name__", "function")

    def __call__(self) -> Any:
        ray_logger.configure(_link.connect(f"{self.link}-{_environment.text('HOROVOD_HOSTNAME')}"))
        executable = self.start[0](*self.start[1], **self.start[2]) if self.start else None
        return self.function(executable)
