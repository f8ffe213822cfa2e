"""Whether the job is about to end, agreed by all ranks at one step, so that they can write a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from hvd import _objects, _preemption, _world
from hvd.process_sets import global_process_set

_asked = False
_listening_in = -1  # process that has our handler: a forked child has it too, but not our job

# How the job may be told to end, and what a script does with it that has no plan of its own.
_STANDARD = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}


def _note(number: int, frame: Any) -> None:
    global _asked
    if _asked and number == signal.SIGINT:  # Ctrl-C again, where no hvdrun makes an end of it
        raise KeyboardInterrupt
    _asked = True


def _listen() -> None:
    global _listening_in
    if _listening_in == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    for number, standard in _STANDARD.items():
        if signal.getsignal(number) in (standard, _preemption.note):  # a handler of the user's own has its own plan
            signal.signal(number, _note)
    _listening_in = os.getpid()


def should_stop() -> bool:
    """True on all ranks, at the same call, once any of them was told to end.

    By Ctrl-C, SIGTERM, SIGHUP or hvdrun's time limit.  Collective over all ranks; costs one small allgather.  Call it
    every step, from the main thread: from the first call on these signals no longer end this process by themselves
    (a second Ctrl-C does), and hvdrun's grace (``--grace``) is the time to save and leave.
    Errors: ValueError before init(); HorovodInternalError when a rank is lost.
    """
    _world.need()
    _listen()
    votes = _objects._exchange(b"\1" if _asked else b"\0", "hvd.should_stop", global_process_set)
    return any(bytes(vote) == b"\1" for vote in votes)
