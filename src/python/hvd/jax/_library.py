"""Registers our handler (hvd._runtime.xla_handler) with jaxlib's XLA."""

from __future__ import annotations

import atexit
import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

import jaxlib
from jaxlib.version import __version__ as VERSION

from hvd._runtime import xla_handler
from hvd._runtime.xla_handler import TARGET
from hvd.exceptions import HorovodInternalError

# XLA's texts for our states at the start of its errors (bridge::canonical_code), and the word for each.
_WORDS = {"FAILED_PRECONDITION": "mismatch", "ABORTED": "peer_lost", "DEADLINE_EXCEEDED": "timeout"}
_FIRST = (0, 5, 0)  # earlier versions of XLA end the process when a token is among a handler's arguments


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _capsule(handler: Any) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.cast(handler, ctypes.c_void_p), b"xla._CUSTOM_CALL_TARGET", None)


def _exiting(library: ctypes.CDLL) -> None:
    """Waits for running programs: XLA waits for them, and they wait for their operations."""
    import jax

    try:
        jax.effects_barrier()
    except Exception:  # it failed, which need not concern its user
        pass
    library.hvd_jax_exiting()


@cache
def load() -> None:
    """Registers our operations with XLA, once.  ImportError gives the missing part."""
    header = Path(str(jaxlib.__file__)).parent / "include/xla/ffi/api/c_api.h"
    try:
        if _version(VERSION) < _FIRST:
            raise ImportError("0.5.0 or later is needed; outside jit, all works")
        library = xla_handler.load(header.read_text())
    except (OSError, ImportError) as error:
        raise ImportError(f"hvd.jax inside jit does not work with this jaxlib ({VERSION}): {error}") from None
    import jax.ffi  # older versions lack it

    atexit.register(_exiting, library)
    jax.ffi.register_ffi_target(TARGET, _capsule(library.hvd_jax_handler), platform="cpu")
    jax.ffi.register_ffi_target(TARGET, _capsule(library.hvd_jax_cuda_handler), platform="CUDA")


def told_by_jax(error: BaseException) -> HorovodInternalError | None:
    """The error that a compiled program reports in JAX's own type, if it is one of ours."""
    state, _, text = str(error).partition(": ")
    if type(error).__name__ not in ("JaxRuntimeError", "XlaRuntimeError") or state not in _WORDS:
        return None
    found = HorovodInternalError(text)
    found.code = _WORDS[state]
    return found


def forget_failures() -> None:
    """Lets the next compiled program run after one that failed during its execution.

    JAX passes the token of an ordered effect from each program to the next.  The token of a failed program is a permanent
    error.  JAX forgets tokens only together with everything else (clear_backends).
    """
    try:
        from jax._src.dispatch import runtime_tokens

        runtime_tokens.clear()
    except (ImportError, AttributeError):  # another JAX: the next program reports it
        pass
