"""The meeting of ranks that hvdrun has not started, through a store of their launcher.

libhvd finds its world through a socket to a host daemon (src/wire/messages/meeting_message.h).  Here a thread of the rank
serves the other end of that socket, and the store carries the ranks' messages.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hvd._job.host_store import exactly
from hvd._runtime import environment as _environment

_FRAME = struct.Struct("<Ii")  # bytes of the body, rank of the reader
_HEAD = struct.Struct("<B3xiiIIIQQ")  # kind, code, rank, number of ranks and of members, bytes of text, token, epoch
_MEMBER = struct.Struct("<iiQQ")  # rank, host, token, bytes of text
_JOIN, _WITHDRAW, _WORLD, _REFUSED = 1, 2, 3, 4
_TIMEOUT = 6  # hvd::Code
_LOOK_EVERY_SECONDS = 0.2  # how soon a rank that gives up is noticed


class Store(Protocol):
    """Keys and values that all ranks of the launch share.  One thread at a time."""

    def set(self, key: str, value: bytes) -> None:
        """Stores the value; each key is stored only once."""

    def get(self, key: str) -> bytes:
        """The value of an existing key."""

    def wait(self, key: str, seconds: float) -> bool:
        """Whether the key exists, or appears within `seconds`."""


@dataclass
class Launch:
    """A rank's place in another launcher's launch."""

    rank: int
    size: int
    host: int  # number of its host, equal for ranks of one host
    many_hosts: bool


def open_meeting(store: Store, launch: Launch) -> None:
    """Lets libhvd find its world through the store.

    Sets HVD_MEETING_FD and, if ranks are on several hosts, HVD_KEY_FD: both belong to this process.  Waits for rank 0 if a
    key is needed.  TimeoutError if rank 0 does not come.
    """
    if launch.many_hosts:
        if launch.rank == 0:
            store.set("hvd/key", secrets.token_hex(32).encode())
        if not store.wait("hvd/key", _environment.number("HVD_INIT_TIMEOUT")):
            raise TimeoutError("rank 0 has not called hvd.init()")
        key = os.memfd_create("hvd-key")
        os.write(key, store.get("hvd/key"))
        _environment.whole["HVD_KEY_FD"] = str(key)
    ours, theirs = socket.socketpair()
    _environment.whole["HVD_MEETING_FD"] = str(theirs.detach())
    threading.Thread(target=_Meetings(store, launch, ours).serve, name="hvd-meeting", daemon=True).start()


@dataclass
class _Join:
    """libhvd's message: it waits for `ranks` (all if empty) and sends them `text`."""

    token: int
    ranks: tuple[int, ...]
    text: bytes


class _Meetings:
    """Serves one rank's meetings, one after the other, in its own thread."""

    def __init__(self, store: Store, launch: Launch, link: socket.socket) -> None:
        self._store, self._launch, self._link = store, launch, link
        self._count: dict[tuple[int, ...], int] = {}  # number of meetings so far, by their ranks
        self._epoch = 0

    def serve(self) -> None:
        while True:
            try:
                kind, join = self._receive()
            except (OSError, EOFError):
                return  # libhvd has closed its end
            if kind != _JOIN:
                continue
            try:
                self._meet(join)
            except Exception as error:  # the store is gone, with the launcher
                self._refuse(join, f"the store of the launcher does not answer: {error}")

    def _meet(self, join: _Join) -> None:
        ranks = join.ranks or tuple(range(self._launch.size))
        number = self._count[ranks] = self._count.get(ranks, 0) + 1
        place = f"hvd/{'-'.join(map(str, join.ranks)) or 'all'}/{number}"
        own = _MEMBER.pack(self._launch.rank, self._launch.host, join.token, len(join.text)) + join.text
        self._store.set(f"{place}/{self._launch.rank}", own)
        if self._launch.rank == ranks[0]:  # the first rank gathers for all: each other rank asks the store for one value only
            if not self._wait(join, [f"{place}/{rank}" for rank in ranks], ranks):
                return
            self._store.set(f"{place}/world", b"".join(self._store.get(f"{place}/{rank}") for rank in ranks))
        elif not self._wait(join, [f"{place}/world"], ranks, place):
            return
        self._epoch += 1
        members = self._store.get(f"{place}/world")
        self._send(_HEAD.pack(_WORLD, 0, -1, 0, len(ranks), 0, 0, self._epoch) + members)

    def _wait(self, join: _Join, keys: Sequence[str], ranks: tuple[int, ...], place: str = "") -> bool:
        """Waits for the keys.  False: libhvd has given up, and learns which ranks are missing."""
        for key in keys:
            while not self._store.wait(key, _LOOK_EVERY_SECONDS):
                if not select.select([self._link], [], [], 0)[0]:
                    continue
                self._receive()
                names = keys if not place else [f"{place}/{rank}" for rank in ranks]
                missing = [rank for rank, name in zip(ranks, names) if not self._store.wait(name, 0.01)]
                self._refuse(join, _missing_text(missing))
                return False
        return True

    def _refuse(self, join: _Join, why: str) -> None:
        member = _MEMBER.pack(self._launch.rank, self._launch.host, join.token, 0)
        text = why.encode()
        self._send(_HEAD.pack(_REFUSED, _TIMEOUT, -1, 0, 1, len(text), 0, 0) + member + text)

    def _send(self, body: bytes) -> None:
        self._link.sendall(_FRAME.pack(len(body), self._launch.rank) + body)

    def _receive(self) -> tuple[int, _Join]:
        size, _ = _FRAME.unpack(exactly(self._link, _FRAME.size))
        body = exactly(self._link, size)
        kind, _, _, ranks, _, text, token, _ = _HEAD.unpack_from(body)
        named = struct.unpack_from(f"<{ranks}i", body, _HEAD.size)
        return kind, _Join(token, named, body[len(body) - text :])


def _missing_text(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:10])) + (", …" if len(ranks) > 10 else "")
    who = f"rank{'s' if len(ranks) > 1 else ''} {names}" if ranks else "the first rank"
    return f"{who} did not call hvd.init() in time (HVD_INIT_TIMEOUT)"
