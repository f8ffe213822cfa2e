"""The guard's end of a rank's link, for tests of messages to the guard."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

MESSAGES = pathlib.Path(__file__).resolve().parents[2] / "src/wire/messages/message.h"


@contextlib.contextmanager
def guard_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket that receives what this process sends to its guard."""
    mine, guard = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setenv("HVD_LINK_FD", str(mine.fileno()))
    guard.setblocking(False)
    with mine, guard:
        yield guard


def received(guard: socket.socket, kind: str) -> dict[str, Any]:
    """The body of the next message.  kind: its name in wire::Type."""
    packet = guard.recv(1 << 16)
    number = int(re.search(rf"\b{kind} = (\d+),", MESSAGES.read_text()).group(1))  # type: ignore[union-attr]
    assert struct.unpack("<II", packet[:8]) == (len(packet) - 8, number)
    return dict(json.loads(packet[8:]))
