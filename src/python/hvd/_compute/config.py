"""The description of a data service, in a file: numbers, addresses and a key.  A compute job gives it to a training job.

The file holds the key, so only its owner may read it.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hvd._compute.service import ComputeClient
from hvd._compute.time_limit import TimeoutException
from hvd._job.own_folder import RefusedPath, open_own_folder

__all__ = ["TfDataServiceConfig"]

_MOST_BYTES = 1 << 20
_LOOK_EVERY_SECONDS = 0.5
_NUMBERS = ("dispatchers", "workers_per_dispatcher", "timeout")
SIDES = ("compute", "training")


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """dispatcher_side: the job that runs the dispatchers, "compute" or "training".

    addresses: those of the ComputeService, by network interface.  timeout: seconds that each wait for the other job lasts.
    Errors: ValueError for a number below 1 or another side.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[tuple[str, int]]]
    key: bytes = dataclasses.field(repr=False)
    timeout: int = 60

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not value >= 1:
                raise ValueError(f"{name} is {value!r}: write a number of 1 or more")
        if self.dispatcher_side not in SIDES:
            raise ValueError(f"dispatcher_side is {self.dispatcher_side!r}: write 'compute' or 'training'")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Errors: ConnectionError if the compute job does not answer."""
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self) -> Mapping[str, Any]:
        """For JSON; with the key in hexadecimal digits."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """The reverse of to_dict().  Errors: ValueError."""
        names = {field.name for field in dataclasses.fields(TfDataServiceConfig)}
        try:
            given = {name: value for name, value in config.items() if name in names}
            given["key"] = bytes.fromhex(given["key"])
            given["addresses"] = {
                str(interface): [(str(host), int(port)) for host, port in found]
                for interface, found in given["addresses"].items()
            }
            return TfDataServiceConfig(**given)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is no configuration of a data service: {error!r}") from None

    def write(self, filename: str) -> None:
        """Replaces the file at once, with mode 0600.  Errors: OSError; RefusedPath for a folder behind another user's link."""
        folder, name = os.path.split(os.fspath(filename))
        place = open_own_folder(folder or ".")
        fresh = f".{name}.{secrets.token_hex(8)}"
        try:
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=place)
            try:
                with open(file, "w") as text:
                    json.dump(self.to_dict(), text)
                os.replace(fresh, name, src_dir_fd=place, dst_dir_fd=place)
            except BaseException:
                os.unlink(fresh, dir_fd=place)
                raise
        finally:
            os.close(place)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False, timeout: float = 600) -> TfDataServiceConfig:
        """timeout: seconds that wait_for_file_creation waits.

        Errors: TimeoutException; RefusedPath for a file that others can write; ValueError; OSError.
        """
        end = time.monotonic() + timeout
        while True:
            try:
                return TfDataServiceConfig.from_dict(json.loads(_text_of(os.fspath(filename))))
            except FileNotFoundError:
                if not wait_for_file_creation:
                    raise
            except ValueError as error:
                raise ValueError(f"{filename}: {error}") from None
            if time.monotonic() > end:
                raise TimeoutException(
                    f"{filename} did not come in {timeout:g} s: start the compute job "
                    "(python -m horovod.tensorflow.data.compute_worker FILE), and give both jobs the same file"
                )
            time.sleep(_LOOK_EVERY_SECONDS)


def _text_of(path: str) -> str:
    """The text of a file that only this user or root can have written."""
    folder, name = os.path.split(path)
    place = open_own_folder(folder or ".")
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError as error:
        error.filename = path
        if error.errno == errno.ELOOP:
            raise RefusedPath(f"{path} is a symbolic link: name the file itself") from None
        raise
    finally:
        os.close(place)
    with open(file) as text:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise RefusedPath(f"{path} is no file: name the one that the compute job has written")
        if about.st_uid not in (os.geteuid(), 0) or about.st_mode & 0o022:
            raise RefusedPath(f"{path} can be written by other users: let the compute job write to a folder of your own")
        if about.st_size > _MOST_BYTES:
            raise ValueError("the file is too large")
        return text.read(_MOST_BYTES)
