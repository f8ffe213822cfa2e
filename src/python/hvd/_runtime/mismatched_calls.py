"""Tells hvdrun which call has failed because ranks disagree (src/wire/shared/mismatched_call.h).

hvdrun lists the ranks' calls if the error ends the job.
"""

from __future__ import annotations

import json
import sys
from types import CodeType

from hvd._runtime import guard_link as _guard_link

_MISMATCHED_CALL = 57  # wire::Type::mismatched_call
_MOST_FRAMES = 48
_MOST_CHARACTERS = 300

Stack = list[tuple[CodeType, int]]  # code and line of each frame, the innermost first

_told = ""  # the last error that was told with the stack of its call


def present_stack() -> Stack:
    """The caller's stack.  It keeps no variables alive."""
    found: Stack = []
    frame = sys._getframe(1)
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return found


def tell(error: str, call: Stack | None = None) -> None:
    """Tells one error.  call: the stack of the call that has failed.  None: the present one, perhaps that of a later wait."""
    global _told
    text = error[:_MOST_CHARACTERS]
    if call is not None:
        _told = text
    elif text == _told:
        return
    stack = [f'File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in call or present_stack()]
    _guard_link.send(_MISMATCHED_CALL, json.dumps({"error": text, "stack": stack}).encode())
