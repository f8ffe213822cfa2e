"""The connection between a rank and the Ray process that holds its slot, on the same host.

hvdrun's ranks are no Ray workers.  A slot's process listens on a unix socket, to which the rank connects.  The socket's name
is abstract, so no file is left.  Calls go to the rank; answers and logged values come back.  Both ends accept only a peer of
the same user, because the messages are pickles.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import sys
import threading
from typing import Callable

from hvd._job.agents import exactly

_HEADER = struct.Struct("<cQ")  # the kind, and the bytes that follow
CALL, ANSWER, FAILURE, LOG = b"c", b"a", b"f", b"l"
_PEER = struct.Struct("iII")  # struct ucred: process, user, group


def _name(link: str) -> bytes:
    return f"\0hvd-ray-{os.geteuid()}-{link}".encode()


def _is_own(peer: socket.socket) -> bool:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(credentials)[1] == os.geteuid())


class Connection:
    """One end.  send() may be called by several threads."""

    def __init__(self, link: socket.socket) -> None:
        self.socket, self.lock = link, threading.Lock()

    def send(self, kind: bytes, data: bytes) -> None:
        """Errors: OSError when the peer is gone."""
        with self.lock:
            self.socket.sendall(_HEADER.pack(kind, len(data)) + data)

    def receive(self) -> tuple[bytes, bytes] | None:
        """The next message; None when the peer is gone."""
        try:
            kind, size = _HEADER.unpack(exactly(self.socket, _HEADER.size))
            return kind, exactly(self.socket, size)
        except (OSError, RuntimeError):
            return None


def connect(link: str) -> Connection:
    """Returns a rank's end.  Errors: OSError without the slot's process; PermissionError for another user's process."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(_name(link))
    if not _is_own(made):
        raise PermissionError("another user's process listens for this rank")
    return Connection(made)


class Listener:
    """The slot's end.  log(data): called with a rank's logged values."""

    def __init__(self, link: str, log: Callable[[bytes], None]) -> None:
        self.log = log
        self.rank: Connection | None = None  # a rank that takes calls
        self.arrived = threading.Event()
        self.answers: queue.SimpleQueue[tuple[bytes, bytes] | None] = queue.SimpleQueue()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(_name(link))
        self.socket.listen(256)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer = self.socket.accept()[0]
            except OSError:
                return
            if _is_own(peer):
                threading.Thread(target=self._read, args=(Connection(peer),), daemon=True).start()
            else:
                peer.close()

    def _read(self, rank: Connection) -> None:
        self.rank = rank
        self.arrived.set()
        try:
            while (message := rank.receive()) is not None:
                if message[0] == LOG:
                    self._pass_on(message[1])
                else:
                    self.answers.put(message)
        finally:
            self.answers.put(None)

    def _pass_on(self, value: bytes) -> None:
        try:
            self.log(value)
        except Exception as error:  # the value's own code runs here; or the queue's actor is dead
            with contextlib.suppress(Exception):  # so does its text
                print(f"hvd.ray: a logged value is lost: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def call(self, payload: bytes) -> tuple[bytes, bytes] | None:
        """The rank's answer to a pickled call; None when the rank has ended."""
        if self.rank is None:
            return None
        with contextlib.suppress(OSError):
            self.rank.send(CALL, payload)
            answer = self.answers.get()
            if answer is None:
                self.answers.put(None)  # for the next call
            return answer
        return None

    def close(self) -> None:
        """Ends the rank's loop of calls."""
        for link in (self.rank.socket if self.rank else None, self.socket):
            if link is not None:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
                link.close()
