"""A function call as a file for hvdrun: cloudpickle of (function, args, kwargs), and a message for failures."""

from __future__ import annotations

import inspect
import json
import linecache
import sys
from collections.abc import Iterator
from typing import Any, Callable


def pickled_call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The payload's bytes.  Objects defined in __main__ (a script, a REPL, a notebook) travel by value.

    Errors: TypeError that names the argument or variable that cannot be pickled.
    """
    try:
        import cloudpickle
    except ImportError as error:
        raise ImportError("hvd.run needs cloudpickle: pip install cloudpickle") from error
    try:
        call = bytes(cloudpickle.dumps((func, args, kwargs)))
    except Exception as error:  # an object's own methods may raise anything
        what, hint = culprit(cloudpickle.dumps, func, args, kwargs)
        raise TypeError(f"hvd.run cannot send {what}: {hint or error}") from error
    return call + _sources(call)


# Separates the call from its sources; src/rank/python/bootstrap.py looks for it.
_SOURCES = b"\0hvd-sources\0"


def _sources(call: bytes) -> bytes:
    """The text of the cells, or of the script, that define the call's functions.  A rank's traceback can then show
    lines of files that the rank does not have.  The text ends with a full stop, as a pickle does."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    names = {name for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None}  # cells
    names.update(name for name in (main, sys.argv[0]) if name)
    sources = {name: "".join(linecache.getlines(name)) for name in names if name.encode(errors="replace") in call}
    return _SOURCES + json.dumps(sources).encode() + b"." if any(sources.values()) else b""


# Limits of the search for the object that cannot be pickled: deep and wide enough to help.
_MOST_DEPTH, _MOST_ITEMS = 12, 2000


def _pieces(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(description, how its attributes are written, value) of each part of a call."""
    for index, value in enumerate(args):
        yield f"argument {index}", f"args[{index}]", value
    for key, value in kwargs.items():
        yield f"argument {key}=", key, value
    if inspect.ismethod(func):
        yield "the object whose method it calls", "self", func.__self__
    function = inspect.unwrap(getattr(func, "__func__", func)) if callable(func) else func
    if not inspect.isfunction(function):
        yield "the object to call", type(func).__name__, func
        return
    yield from _used_by(function)


def _used_by(function: Any) -> Iterator[tuple[str, str, Any]]:
    name = function.__name__
    found = inspect.getclosurevars(function)
    for key, value in found.nonlocals.items():
        yield f"variable {key!r}, which {name}() uses,", key, value
    for key, value in found.globals.items():
        yield f"global variable {key!r}, which {name}() uses,", key, value
    for index, value in enumerate(function.__defaults__ or ()):
        yield f"default value {index} of {name}()", f"{name}.__defaults__[{index}]", value


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an object, each with its path."""
    if isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif inspect.isfunction(value):
        yield from ((written, item) for _, written, item in _used_by(value))
    elif inspect.ismethod(value):
        yield f"{path}.__self__", value.__self__
    elif not isinstance(value, type) and hasattr(value, "__dict__"):
        yield from ((f"{path}.{name}", item) for name, item in vars(value).items())


def culprit(dumps: Callable[[Any], bytes], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str | None]:
    """(the object that cannot be pickled, with the path of attributes to it; advice if known)."""

    def fails(value: Any) -> bool:
        try:
            dumps(value)
        except Exception:  # see pickled_call
            return True
        return False

    for what, path, value in _pieces(func, args, kwargs):
        if not fails(value):
            continue
        whole, seen = path, {id(value)}
        for _ in range(_MOST_DEPTH):
            if hint := _spark_hint(value):
                return _named(what, whole, path, value), hint
            parts = [part for _, part in zip(range(_MOST_ITEMS), _parts(path, value))]
            worse = next(((p, v) for p, v in parts if id(v) not in seen and fails(v)), None)
            if worse is None:
                break
            path, value = worse
            seen.add(id(value))
        return _named(what, whole, path, value), _spark_hint(value)
    return f"{getattr(func, '__name__', func)!r} and its arguments", None


def _named(what: str, whole: str, path: str, value: Any) -> str:
    kind = f"a {type(value).__module__}.{type(value).__qualname__}"
    return f"{what} ({kind})" if path == whole else f"{what} because of {path} ({kind})"


def _spark_hint(value: Any) -> str | None:
    """Spark's own objects live at the driver."""
    module, name = type(value).__module__, type(value).__qualname__
    if not module.startswith("pyspark."):
        return None
    if name in ("SparkContext", "SparkSession", "SQLContext"):
        return (
            f"the {name} exists only at the driver, and ranks run on executors: take out what the ranks need before "
            "(collect it, or write it to files that the ranks read), and use that in the function"
        )
    if name in ("DataFrame", "RDD", "Column", "PipelinedRDD"):
        return f"a {name} can be used only at the driver: collect it, or write it to files that the ranks read"
    return None
