"""Reports to the program that the job is about to end.  All ranks get the report at the same step, so that they can write a
checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from hvd._job import preemption as _preemption
from hvd._runtime import forked_children as _forked_children
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world
from hvd.process_sets import global_process_set

told = False  # should_stop() has returned True
_asked = False
_listening_in = -1  # process with our handler

# The signals that end a job, and their default actions.
_STANDARD: dict[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


def _note(number: int, frame: Any) -> None:
    global _asked
    if _asked and number == signal.SIGINT:  # Ctrl-C again, without an hvdrun that ends the process
        raise KeyboardInterrupt
    _asked = True


def _listen() -> None:
    global _listening_in
    if _listening_in == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    for number, standard in _STANDARD.items():
        if signal.getsignal(number) in (standard, _preemption.note, _preemption.end):  # a handler of the user stays
            signal.signal(number, _note)
    _listening_in = os.getpid()


for _number, _default in _STANDARD.items():
    _forked_children.have_default(_number, _note, _default)


def should_stop() -> bool:
    """True on all ranks, at the same call, once any of them was told to end.

    The reason is Ctrl-C, SIGTERM, SIGHUP or hvdrun's time limit.  Collective over all ranks; costs one small allgather.
    Call it every step, from the main thread.  From the first call on, these signals no longer end this process by
    themselves, except a second Ctrl-C.  hvdrun's grace period (``--grace``) is the time to save and leave.
    Errors: ValueError before init(); HorovodInternalError when a rank is lost.
    """
    global told
    _world.need()
    if _world.is_active():  # a forked child gets its error from the exchange
        _listen()
    votes = _objects._exchange(b"\1" if _asked else b"\0", "hvd.should_stop", global_process_set)
    stops = any(bytes(vote) == b"\1" for vote in votes)
    told = told or stops
    return stops
