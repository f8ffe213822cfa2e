"""Whether the job is about to end, agreed by all ranks at one step, so that they can write a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from hvd import _objects, _world
from hvd.process_sets import global_process_set

_asked = False
_listening_in = -1  # process that has our handler: a forked child has it too, but not our job


def _note(number: int, frame: Any) -> None:
    global _asked
    _asked = True


def _listen() -> None:
    global _listening_in
    if _listening_in == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # a handler of the user's own has its own plan
        signal.signal(signal.SIGTERM, _note)
    _listening_in = os.getpid()


def should_stop() -> bool:
    """True on all ranks, at the same call, once any of them was told to end: Ctrl-C, SIGTERM, hvdrun's time limit.

    Collective over all ranks; costs one small allgather.  Call it every step, from the main thread: from the first call
    on SIGTERM no longer ends this process by itself, and hvdrun's grace (``--grace``) is the time to save and leave.
    Errors: ValueError before init(); HorovodInternalError when a rank is lost.
    """
    _world.rank()
    _listen()
    votes = _objects._exchange(b"\1" if _asked else b"\0", "hvd.should_stop", global_process_set)
    return any(bytes(vote) == b"\1" for vote in votes)
