"""torch.compile around our operations.

The blocking operations go into the graph, as operators (_compiled.py).  The graph breaks around every other operation.
The other operations move no data through torch, so Dynamo has nothing to trace.  Without this module, Dynamo would try to trace
all of our functions, and warn of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["exclude_from_compile", "traced_instead"]

# The operations that go into graphs.
_IN_GRAPHS = (
    "allgather", "allreduce", "allreduce_", "alltoall", "broadcast", "broadcast_", "grouped_allgather", "grouped_allreduce",
    "grouped_allreduce_", "grouped_reducescatter", "reducescatter",
)  # fmt: skip
_REASON = (
    "this one of hvd's functions runs outside of compiled graphs; the blocking operations can be inside, in a recent torch"
)


def exclude_from_compile(functions: Iterable[Any]) -> None:
    """Marks functions as torch.compiler.disable() does.  Importing torch.compiler takes a second, and most scripts do
    not need it.

    From torch 2.7 on, functions that they call are excluded too.  Does nothing in a torch without such a mark.
    """
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    mark: Any = getattr(frames, "set_code_exec_strategy", None)
    if mark is None:
        return
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for function in functions:
        plain = getattr(function, "__func__", function)  # of a bound method
        if not hasattr(plain, "__code__"):
            continue  # in C: the graph breaks there anyway
        mark(plain.__code__, skip)
        plain._torchdynamo_disable = True
        plain._torchdynamo_disable_msg = _REASON


def traced_instead(operations: Any) -> None:
    """Lets Dynamo trace the functions of _compiled.py in place of those of hvd.torch.ops.

    Plain calls cost nothing more, because only Dynamo reads the mark.  In an older torch, operators cannot have an
    ordered effect.  Its compiler may then drop an operation with a result that a rank does not use.  The other ranks
    would wait, so the operations stay excluded there.
    """
    if not hasattr(torch.library.Library, "_register_effectful_op"):
        return
    for name in _IN_GRAPHS:
        function = getattr(operations, name)
        getattr(function, "__func__", function)._torchdynamo_inline = _stub(name)


def _stub(name: str) -> Any:
    def traced(*args: Any, **kwargs: Any) -> Any:
        from hvd.torch import _compiled

        return getattr(_compiled, name)(*args, **kwargs)

    return traced
