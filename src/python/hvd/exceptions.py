"""The exceptions of hvd.

A wrong argument on this rank is a plain ValueError.  What only the ranks
together can find out is a HorovodInternalError.
"""

from __future__ import annotations

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "UnsupportedError",
    "from_status",
    "get_version_mismatch_message",
]

_UNAVAILABLE = 4
_STATUS_WORDS = {3: "mismatch", 4: "unavailable", 5: "peer_lost", 6: "timeout", 70: "internal"}


class HorovodInternalError(RuntimeError):
    """An operation failed on all ranks that took part, or a peer is gone.

    ``code`` is one word: ``mismatch`` (the ranks disagree; the next operation works), ``peer_lost``, ``timeout`` or
    ``internal``.
    """

    code: str = "internal"


class UnsupportedError(ValueError, NotImplementedError):
    """An operation that does not exist.  Scripts for Horovod catch it as a RuntimeError."""


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts changed; elastic training continues from the last commit."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the set of hosts changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework has another version than was asked for.  Nothing here is tied to one: only a script's own check raises it."""

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
    if status == _UNAVAILABLE:
        return RuntimeError(text)
    error = HorovodInternalError(text)
    error.code = _STATUS_WORDS.get(status, "internal")
    return error
