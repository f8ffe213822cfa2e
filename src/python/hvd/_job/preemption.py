"""SIGTERM at a rank.  In an elastic job the rank leaves at its next commit, and the others lose no work.

All ranks learn of the departure in the same call, so no rank begins a step that would be repeated.  That call raises on all
ranks, the rank leaves, and the others form the next world.  In a job of fixed ranks, and while the ranks of an elastic job
meet, the rank ends at once. With hvdrun --state-dir it first writes its last commit.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from hvd._runtime import forked_children as _forked_children
from hvd._runtime import guard_link as _guard_link
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from hvd.process_sets import global_process_set

_asked = False
_HOSTS = struct.Struct("=ddq")  # rank 0's data on hosts
_LEAVES = b"\1"
# This message to the guard reports the departure: Type::phase, leaving_phase of src/wire/messages/death.h.
_PHASE, _LEAVING = 8, b"leaves"


def note(number: int, frame: Any) -> None:
    """The signal handler."""
    global _asked
    _asked = True


_before_end: Callable[[], None]


def end(number: int = signal.SIGTERM, frame: Any = None) -> None:
    """The signal handler in a job of fixed ranks, and while ranks meet.  From any thread."""
    _before_end()
    _end_by_sigterm()


def _end_by_sigterm() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the signal may have interrupted a write
            stream.flush()
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # the default action; signal.signal() needs the main thread
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def ends_in_native_code() -> Iterator[None]:
    """In the block, SIGTERM calls end() at once, even while the main thread waits in C code. end() must be the handler of
    SIGTERM.

    Python calls a handler only when the main thread returns from C code.  So a thread waits for the signal's number.
    """
    if signal.getsignal(signal.SIGTERM) is not end or threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def watch() -> None:
        with open(numbers, "rb", buffering=0) as pipe:
            while number := pipe.read(1):
                if number[0] == signal.SIGTERM:
                    end()

    threading.Thread(target=watch, name="hvd SIGTERM", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup)


for _handler in (note, end):
    _forked_children.have_default(signal.SIGTERM, _handler, signal.SIG_DFL)


@contextmanager
def finishes_writing(before_end: Callable[[], None], at_signal: bool) -> Iterator[None]:
    """An error or interrupt that leaves the block first calls before_end(); with at_signal, SIGTERM in the block too.

    A handler of the script stays.
    """
    global _before_end
    _before_end = before_end
    with _handles(end) if at_signal else nullcontext():
        try:
            yield
        except BaseException:
            before_end()
            raise


@contextmanager
def _handles(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Makes `handler` the handler of SIGTERM in the block, unless the script has its own handler."""
    before = signal.getsignal(signal.SIGTERM)
    is_ours = threading.current_thread() is threading.main_thread() and before in (signal.SIG_DFL, end)
    if is_ours:
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        if is_ours and signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def waits_for_commit(before_leaving: Callable[[], None]) -> Iterator[None]:
    """In the block SIGTERM only sets a flag; if the world ends before the next commit, this process ends too.

    A handler of the script stays.
    """
    with _handles(note):
        try:
            yield
        except (HorovodInternalError, HostsUpdatedInterrupt):
            leave_if_asked(before_leaving)
            raise


def agree(hosts: tuple[float, float, int]) -> tuple[tuple[float, float, int], bool]:
    """Returns rank 0's data on hosts, and whether a rank leaves: the same on all ranks.  Collective; one small allgather.

    A later SIGTERM counts at the next call.
    """
    is_first = _world.rank() == 0
    mine = (_HOSTS.pack(*hosts) if is_first else b"") + (_LEAVES if _asked else b"")
    words = [mine] if _world.size() == 1 else _objects._exchange(mine, "hvd.elastic.hosts", global_process_set)
    leaves = len(words[0]) > _HOSTS.size or any(len(word) for word in words[1:])
    if leaves and _world.size() > 1:
        # A leaving rank waits until all ranks know: its end interrupts their pending operations, this one included.
        with suppress(HorovodInternalError):
            _objects._exchange(b"", "hvd.elastic.leave", global_process_set)
    before, latest, what = _HOSTS.unpack_from(words[0])
    return (before, latest, what), leaves


def leave_if_asked(before: Callable[[], None]) -> None:
    """Ends this process by SIGTERM, if a SIGTERM has asked the rank to leave.  before: called first."""
    if not _asked:
        return
    before()
    print("hvd.elastic: this rank leaves, as SIGTERM has asked", file=sys.stderr)
    _tell_guard()
    _end_by_sigterm()


def _tell_guard() -> None:
    """Makes the guard record that this rank has left in order."""
    _guard_link.send(_PHASE, _LEAVING)
