"""Excludes our operations from torch.compile: it breaks the graph before a call of one, and continues after it.

torch does not move the data, so there is nothing to trace.  Without this, Dynamo would try one function of ours after the
other, and warn of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["exclude_from_compile"]

_REASON = "hvd's operations run outside of compiled graphs"


def exclude_from_compile(functions: Iterable[Any]) -> None:
    """Marks them as torch.compiler.disable() does, whose import takes a second that most scripts do not need.

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
