"""A function call as a file for hvdrun: cloudpickle of (function, args, kwargs), and what to say when that fails."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Callable


def pickled_call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The payload's bytes.  What is defined in __main__ (a script, a REPL, a notebook) travels by value.

    Errors: TypeError that names the argument or variable that cannot be pickled.
    """
    try:
        import cloudpickle
    except ImportError as error:
        raise ImportError("hvd.run needs cloudpickle: pip install cloudpickle") from error
    try:
        return bytes(cloudpickle.dumps((func, args, kwargs)))
    except Exception as error:  # whatever an object's own methods raise
        raise TypeError(f"hvd.run cannot send {_culprit(cloudpickle.dumps, func, args, kwargs)}: {error}") from error


def _pieces(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for index, value in enumerate(args):
        yield f"argument {index}", value
    for key, value in kwargs.items():
        yield f"argument {key}=", value
    function = inspect.unwrap(getattr(func, "__func__", func)) if callable(func) else func
    if not inspect.isfunction(function):
        yield "the object to call", func
        return
    name = function.__name__
    found = inspect.getclosurevars(function)
    for key, value in found.nonlocals.items():
        yield f"variable {key!r}, which {name}() uses,", value
    for key, value in found.globals.items():
        yield f"global variable {key!r}, which {name}() uses,", value
    for index, value in enumerate(function.__defaults__ or ()):
        yield f"default value {index} of {name}()", value


def _culprit(dumps: Callable[[Any], bytes], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    for what, value in _pieces(func, args, kwargs):
        try:
            dumps(value)
        except Exception:  # see pickled_call
            return f"{what} (a {type(value).__module__}.{type(value).__qualname__})"
    return f"{getattr(func, '__name__', func)!r} and its arguments"
