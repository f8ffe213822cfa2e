"""The rank's end of `hvdrun attach`: the handler of hvdrun's signal.

hvdrun listens on a socket named after this process and sends a signal.  Python runs the handler in the main thread as soon as
native code returns.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import types
from collections.abc import Callable

SIGNAL = 60  # a real-time signal without another known user; launcher/control/commands/attach.cc has it too


def _connect() -> socket.socket | None:
    """Connects to the hvdrun that waits for this process, if it is this user's."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(5)
        link.connect(f"\0hvdrun-attach-{os.getpid()}")
        uid = struct.unpack("iII", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid not in (os.geteuid(), 0):
            raise PermissionError
        link.settimeout(None)
    except OSError:  # it has given up meanwhile, or belongs to another user
        link.close()
        return None
    return link


def _console() -> types.ModuleType:
    from hvd._job import console  # importing pdb takes time, and few ranks need it

    return console


def attached(number: int, frame: types.FrameType | None, console: Callable[[], types.ModuleType] = _console) -> None:
    """The signal's handler.  `console` imports console.py: a rank that has no hvd gets it from hvdrank."""
    link = _connect()
    if link is not None and frame is not None:
        console().open_at(frame, link)


def offer() -> None:
    """Registers the handler, unless the program has its own.  Call it on the main thread only."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(SIGNAL) == signal.SIG_DFL:
        signal.signal(SIGNAL, attached)
