"""Watches for a backward() that may add to gradients in progress.

torch makes a Python object of a gradient for each hook that runs before the gradient is added.  That doubles the cost
of a gradient's hooks, and few scripts need such a hook.  So parameters first have only the hook that runs afterwards.
Parameters get the other hook, permanently, when a backward() begins
  - after another backward(), if no step() has taken its gradients yet, or
  - while another backward() runs, on any thread.
Only calls of torch's Python count.  A backward() that C++ code begins meets an error in Reducer._ready instead.

A thread that runs backward() reads a parameter's hooks without the GIL, once in each backward().  So a parameter gets
its other hook only after that.  If its gradient has been added to, it gets the hook at once.  Otherwise the hook that
runs afterwards sets it.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import torch

from hvd import _native

_reducers: WeakSet[Any] = WeakSet()
expected = False  # whether parameters need both hooks


def watch(reducer: Any) -> None:
    """Must be called before the reducer hooks parameters."""
    _watch_torch()
    _reducers.add(reducer)


def expect(before_any_pass: bool) -> None:
    """From now on, parameters get both hooks.  before_any_pass: no backward() runs."""
    global expected
    expected = True
    _native.both_hooks(True)
    for reducer in list(_reducers):
        for entry in list(reducer.entries.values()):
            if entry.hooks and (before_any_pass or _native.passes_begun([entry])):
                entry.hook_before()


def _begins(another_runs: bool) -> None:
    if not expected and (another_runs or any(_native.passes_begun(reducer._ordered) for reducer in list(_reducers))):
        expect(before_any_pass=False)


class _WatchedEngine(torch._C._ImperativeEngine):  # type: ignore[misc, name-defined]
    """torch's engine, with an attribute in front of run_backward()."""

    run_backward: Any


def _watch_torch() -> None:
    """Has torch's Python call _begins() at the beginning of each backward()."""
    variable: Any = torch.autograd.Variable
    if not isinstance(variable._execution_engine, _WatchedEngine):
        engine = _WatchedEngine()
        engine.run_backward = _native.watched_backward(engine.run_backward, _begins)
        variable._execution_engine = engine
