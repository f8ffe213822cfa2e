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
import time
from collections.abc import Callable, Sequence
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
        """Stores the value, and replaces an existing value of the key."""

    def get(self, key: str) -> bytes:
        """The value of an existing key."""

    def wait(self, key: str, seconds: float) -> bool:
        """Returns whether the key exists, or appears within `seconds`."""


@dataclass
class Launch:
    """A rank's place in another launcher's launch."""

    rank: int
    size: int
    host: int  # number of its host, equal for ranks of one host
    many_hosts: bool


def open_meeting(store: Store, launch: Launch) -> None:
    """Lets libhvd find its world through the store.

    Sets HVD_MEETING_FD and, if ranks are on several hosts, HVD_KEY_FD: both belong to this process.  Waits for all ranks
    if a key is needed.  TimeoutError if some do not come.
    """
    if launch.many_hosts:
        end = time.monotonic() + _environment.number("HVD_INIT_TIMEOUT")
        text = secrets.token_hex(32).encode()  # of the first rank: the key
        everything = tuple(range(launch.size))
        met, missing = gather(store, "hvd/key", everything, launch.rank, text, lambda: time.monotonic() > end)
        if met is None:
            raise TimeoutError(_missing_text(missing))
        key = os.memfd_create("hvd-key")
        os.write(key, met[: len(text)])
        _environment.whole["HVD_KEY_FD"] = str(key)
    ours, theirs = socket.socketpair()
    _environment.whole["HVD_MEETING_FD"] = str(theirs.detach())
    threading.Thread(target=_Meetings(store, launch, ours).serve, name="hvd-meeting", daemon=True).start()


def gather(
    store: Store, place: str, ranks: Sequence[int], rank: int, own: bytes, given_up: Callable[[], bool]
) -> tuple[bytes | None, list[int]]:
    """Exchanges texts between `ranks`.  Returns (the texts of all ranks in the order of `ranks`, []).  Returns (None, the
    missing ranks) if given_up() becomes true first.

    own: this rank's text, unique to this call.

    torchrun keeps its store when it restarts the ranks, so the store may have texts of earlier processes.  The first rank
    therefore chooses a random word for the meeting, and the other ranks use the newest word.  A rank takes only a result that
    contains its own text.
    """
    if rank == ranks[0]:
        word = secrets.token_hex(8)
        keys = {other: f"{place}/{word}/{other}" for other in ranks[1:]}
        store.set(f"{place}/first", word.encode())
        for key in keys.values():
            while not store.wait(key, _LOOK_EVERY_SECONDS):
                if given_up():
                    return None, [other for other, name in keys.items() if not store.wait(name, 0.01)]
        everything = b"".join([own, *map(store.get, keys.values())])
        store.set(f"{place}/{word}/all", everything)
        return everything, []
    word = ""
    while not given_up():
        if not store.wait(f"{place}/first", _LOOK_EVERY_SECONDS):
            continue
        newest = store.get(f"{place}/first").decode()
        if newest != word:
            word = newest
            store.set(f"{place}/{word}/{rank}", own)
        if store.wait(f"{place}/{word}/all", _LOOK_EVERY_SECONDS):
            everything = store.get(f"{place}/{word}/all")
            if own in everything:
                return everything, []
            time.sleep(0.01)  # of an earlier meeting: the first rank has not come yet
    return None, [other for other in ranks[1:] if not store.wait(f"{place}/{word}/{other}", 0.01)] if word else [ranks[0]]


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
        self._count: dict[tuple[int, ...], int] = {}  # ranks of a meeting → number of its meetings
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
        members, missing = gather(self._store, place, ranks, self._launch.rank, own, self._given_up)
        if members is None:
            return self._refuse(join, _missing_text(missing))
        self._epoch += 1
        self._send(_HEAD.pack(_WORLD, 0, -1, 0, len(ranks), 0, 0, self._epoch) + members)

    def _given_up(self) -> bool:
        """Returns whether libhvd no longer waits for the meeting."""
        if not select.select([self._link], [], [], 0)[0]:
            return False
        self._receive()
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
