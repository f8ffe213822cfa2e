"""The exceptions of hvd.

A wrong argument on this rank is a plain ValueError.  An error that only the ranks together can detect is a
HorovodInternalError.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "DivergedAgainError",
    "DivergedError",
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "JobError",
    "UnsupportedError",
    "from_status",
    "get_version_mismatch_message",
]

_MISMATCH, _UNAVAILABLE, _DIVERGED = 3, 4, 7
_STATUS_WORDS = {3: "mismatch", 4: "unavailable", 5: "peer_lost", 6: "timeout", 7: "diverged", 70: "internal"}


class HorovodInternalError(RuntimeError):
    """An operation failed on all ranks that took part, or a peer is gone.

    ``code`` is one word: ``mismatch``, ``peer_lost``, ``timeout``, ``diverged`` or ``internal``.  ``mismatch``: the ranks
    disagree; the next operation works.  ``diverged``: results or parameters differ between ranks (--agreement stop).
    """

    code: str = "internal"


class DivergedError(HorovodInternalError):
    """Ranks have different results of one operation, or different parameters or optimizer state (hvdrun --agreement stop)."""

    code = "diverged"


class DivergedAgainError(RuntimeError):
    """--agreement repair: this rank has other parameters than the majority, although it was repaired before.

    The rank's process ends, and an elastic job no longer uses its host.  hvd.elastic.run does not catch it.
    """


# Text and code of errors that were passed to C++ code, which raises them again as a RuntimeError.  Exceptions themselves are
# not kept, because their tracebacks would keep objects alive.
_carried: deque[tuple[str, str]] = deque(maxlen=16)


def note_carried(error: BaseException) -> None:
    """Notes an error that C++ code receives, and will raise as a RuntimeError with its text."""
    if isinstance(error, HorovodInternalError):
        _carried.append((str(error), error.code))


@contextmanager
def carried_errors() -> Iterator[None]:
    """A RuntimeError that leaves the block and carries a HorovodInternalError becomes one."""
    try:
        yield
    except HorovodInternalError:
        raise
    except RuntimeError as error:
        text = str(error)
        for told, code in reversed(_carried):
            if told in text:
                found = HorovodInternalError(told)
                found.code = code
                raise found from error
        raise


class JobError(RuntimeError):
    """A job of hvd.run() failed.

    ``verdict``: why, as in the file of ``--verdict-filename`` (hvdrun-verdict(5)); None where hvdrun itself was killed.
    """

    def __init__(self, message: str, verdict: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.verdict = verdict


class UnsupportedError(ValueError, NotImplementedError):
    """An operation that does not exist.  Scripts for Horovod catch it as a RuntimeError."""


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts changed; elastic training continues from the last commit."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the set of hosts changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework has another version than required.  hvd needs no fixed version; only a script's own check raises this."""

    def __init__(self, name: str, version: str, installed_version: str | None) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: str, installed_version: str | None) -> str:
    """The text of HorovodVersionMismatchError."""
    return f"{name} {version} was asked for, but {installed_version or 'none'} is installed"


def from_status(status: int, text: str) -> Exception:
    """The exception for a failed call of libhvd; _native raises it."""
    if status == _MISMATCH:
        from hvd._runtime import mismatched_calls

        mismatched_calls.tell(text)
    if status == _UNAVAILABLE:
        return RuntimeError(text)
    error = DivergedError(text) if status == _DIVERGED else HorovodInternalError(text)
    error.code = _STATUS_WORDS.get(status, "internal")
    return error
