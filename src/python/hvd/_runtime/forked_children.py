"""Signals in forked children, such as a DataLoader's workers: they get the default actions back.

A handler of this package only notes the signal, or ends the rank.  But Python ends workers by SIGTERM, and waits for them.
A signal that reaches a child before its handlers are restored would be lost.  So it stays blocked for that time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

_standard: dict[tuple[int, Callable[..., Any]], Any] = {}
_masks = threading.local()  # several threads may fork


def have_default(number: int, handler: Callable[..., Any], default: Any) -> None:
    """Registers a handler: from now on a forked child gets the default action in its place."""
    _standard[number, handler] = default


def _ours() -> dict[int, Any]:
    return {number: default for (number, handler), default in _standard.items() if signal.getsignal(number) is handler}


def _before() -> None:
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _ours())


def _in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _in_child() -> None:
    try:
        for number, default in _ours().items():
            signal.signal(number, default)
    finally:
        _in_parent()  # a child with blocked signals would never end


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
