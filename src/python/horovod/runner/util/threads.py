"""Functions in threads of their own, as scripts import them from Horovod."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["execute_function_multithreaded", "in_thread", "on_event"]


def _checked(args: Any) -> tuple[Any, ...]:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not a {type(args).__name__}: write (arg,) for a single one")
    return args


def in_thread(
    target: Callable[..., Any], args: tuple[Any, ...] = (), name: str | None = None, daemon: bool = True, silent: bool = False
) -> threading.Thread:
    """Starts target(*args) in a thread and returns the thread.  silent: drops its exceptions."""

    def quiet(*given: Any) -> None:
        try:
            target(*given)
        except Exception:  # silent drops exceptions
            pass

    thread = threading.Thread(target=quiet if silent else target, args=_checked(args), name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls func(*args) in a thread once event is set; never if stop is set before."""
    if event is None:
        raise ValueError("an event is needed, not None")
    if stop is None and not daemon:
        raise ValueError("a thread that is no daemon needs a stop event, or it may never end")
    given = _checked(args)

    def wait() -> None:
        while not event.wait(check_stop_interval_s if stop else None):
            if stop and stop.is_set():
                return
        if not (stop and stop.is_set()):
            func(*given)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """fn(*args) for each of args_list, in threads: {index: result}; without waiting, None at once."""
    if not block_until_all_done:
        for args in args_list:
            in_thread(fn, tuple(args))
        return None
    if not args_list:
        return {}
    with ThreadPoolExecutor(min(max_concurrent_executions, len(args_list))) as pool:
        return dict(enumerate(pool.map(lambda args: fn(*args), args_list)))
