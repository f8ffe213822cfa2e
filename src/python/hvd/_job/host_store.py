"""A store (store_meeting.Store) for ranks of one host and one user.  The first rank serves it on an abstract unix
socket.

Each end checks the other's user, because any user can take the name of an abstract socket first.
Frames: length of the key, length of the value, key, value.  A frame without a value is a query; -1 answers that the key is
missing.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

_HEAD = struct.Struct("<ii")
_MOST_BYTES = 1 << 20  # of a key or value: a rank sends a few hundred bytes


class HostStore:
    """One rank's end.  Threads: one at a time."""

    def __init__(self, name: str, serves: bool, limit_seconds: float) -> None:
        """name: the same on all ranks, different for all jobs of a host.  serves: on one rank only, for its lifetime.

        Errors: TimeoutError if no rank serves; PermissionError if another user does; OSError.
        """
        address = b"\0" + name.encode()
        if serves:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(address)
            listener.listen(128)
            threading.Thread(target=_Server(listener).accept, name="hvd-store", daemon=True).start()
        end = time.monotonic() + limit_seconds
        while True:
            self._link = socket.socket(socket.AF_UNIX)
            self._link.settimeout(limit_seconds)  # also of each later wait: the first rank may be stopped
            try:
                self._link.connect(address)
                break
            except (ConnectionRefusedError, BlockingIOError):  # no server yet, or too many connections at once
                self._link.close()
                if time.monotonic() > end:
                    raise TimeoutError("rank 0 has not called hvd.init()") from None
                time.sleep(0.02)
        if _user_of(self._link) != os.geteuid():
            raise PermissionError(f"user {_user_of(self._link)} has taken the socket @{name} of this job")

    def set(self, key: str, value: bytes) -> None:
        self._link.sendall(_frame(key.encode(), value))

    def get(self, key: str) -> bytes:
        value = self._ask(key)
        assert value is not None, key
        return value

    def wait(self, key: str, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self._ask(key) is None:
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def _ask(self, key: str) -> bytes | None:
        self._link.sendall(_frame(key.encode(), None))
        return _next_frame(self._link)[1]


class _Server:
    """Threads: one accepts, and each connection has one."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._values: dict[bytes, bytes] = {}

    def accept(self) -> None:
        while True:
            link, _ = self._listener.accept()
            if _user_of(link) == os.geteuid():
                threading.Thread(target=self._serve, args=(link,), name="hvd-store", daemon=True).start()
            else:
                link.close()

    def _serve(self, link: socket.socket) -> None:
        try:
            while True:
                key, value = _next_frame(link)
                if value is None:
                    link.sendall(_frame(key, self._values.get(key)))
                else:
                    self._values[key] = value
        except (OSError, EOFError):
            link.close()


def _user_of(link: socket.socket) -> int:
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("iii", credentials)[1])


def _frame(key: bytes, value: bytes | None) -> bytes:
    return _HEAD.pack(len(key), -1 if value is None else len(value)) + key + (value or b"")


def _next_frame(link: socket.socket) -> tuple[bytes, bytes | None]:
    key_size, size = _HEAD.unpack(exactly(link, _HEAD.size))
    if not (0 <= key_size <= _MOST_BYTES and -1 <= size <= _MOST_BYTES):
        raise EOFError
    key = exactly(link, key_size)
    return key, None if size < 0 else exactly(link, size)


def exactly(link: socket.socket, size: int) -> bytes:
    """The next `size` bytes.  EOFError if the other end has closed; TimeoutError if the socket has a limit."""
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
