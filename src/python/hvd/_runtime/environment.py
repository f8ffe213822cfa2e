"""The one place that reads this process's environment.

Our own variables come from the table of options (hvd/_job/options.py) and are checked when they are read.  `whole` is
the environment itself: for other programs' variables, for child processes, and to set a variable.
"""

from __future__ import annotations

import os

from hvd._job.options import VARIABLES

__all__ = ["flag", "given", "integer", "number", "text", "whole"]

whole = os.environ

_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def given(name: str) -> bool:
    """Returns whether the variable is set to more than an empty text."""
    assert name in VARIABLES, name
    return bool(whole.get(name))


def text(name: str) -> str:
    """The variable, else its default, else an empty text."""
    return whole.get(name) or VARIABLES[name].default or ""


def integer(name: str) -> int:
    """A whole number.  ValueError for another text, and for a variable with neither a value nor a default.  The error names the
    variable."""
    try:
        value = int(text(name))
    except ValueError:
        raise _refused(name, "a whole number") from None
    return int(_within_limits(name, value))


def number(name: str) -> float:
    """A number.  ValueError as in integer()."""
    try:
        value = float(text(name))
    except ValueError:
        raise _refused(name, "a number") from None
    return _within_limits(name, value)


def flag(name: str) -> bool:
    """A boolean.  ValueError as in integer()."""
    value = _BOOLEANS.get(text(name).lower())
    if value is None:
        raise _refused(name, "a boolean (write 1, 0, true, false, yes, no, on or off)")
    return value


def _within_limits(name: str, value: float) -> float:
    row = VARIABLES[name]
    if not (row.least is None or value >= row.least):
        raise _refused(name, f"possible; the least is {row.least:g}")
    if not (row.most is None or value <= row.most):
        raise _refused(name, f"possible; the most is {row.most:g}")
    return value


def _refused(name: str, wanted: str) -> ValueError:
    return ValueError(f"{name}: {text(name)!r} is not {wanted}")
