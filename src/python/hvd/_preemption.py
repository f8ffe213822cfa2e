"""SIGTERM at a rank of an elastic job: it leaves at its next commit, and the others lose nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt

_asked = False


def note(number: int, frame: Any) -> None:
    """The handler."""
    global _asked
    _asked = True


@contextmanager
def waits_for_commit() -> Iterator[None]:
    """In the block SIGTERM only asks; where the world ends before the next commit, so does this process.

    A handler of the script's own stays.
    """
    is_ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, note)
    try:
        yield
    except (HorovodInternalError, HostsUpdatedInterrupt):
        leave_if_asked()
        raise
    finally:
        if is_ours and signal.getsignal(signal.SIGTERM) is note:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def asked() -> bool:
    """Whether SIGTERM has come."""
    return _asked


def leave_if_asked() -> None:
    """Ends this process by SIGTERM, if it was asked to."""
    if not _asked:
        return
    print("hvd.elastic: this rank leaves, as SIGTERM has asked", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
