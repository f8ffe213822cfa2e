"""Our handler in XLA's FFI: reads the layout of this jaxlib's interface, loads the library, registers the handler.

The library is compiled without jaxlib.  XLA's C interface keeps its structs.  Only the functions in one table have moved
between versions, so their offsets are read from jaxlib's header.
"""

from __future__ import annotations

import atexit
import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

import jaxlib
from jaxlib.version import __version__ as VERSION

from hvd import _native
from hvd.exceptions import HorovodInternalError

TARGET = "hvd_operation"
# XLA's texts for our states at the start of its errors (bridge::canonical_code), and the word for each.
_WORDS = {"FAILED_PRECONDITION": "mismatch", "ABORTED": "peer_lost", "DEADLINE_EXCEEDED": "timeout"}
_path = Path(_native.__file__).parent / "libhvd_jax.so"
_POINTER = 8
_FIRST = (0, 5, 0)  # earlier versions of XLA end the process when a token is among a handler's arguments


class _Layout(ctypes.Structure):
    """hvd::jax::xla::Layout."""

    _fields_ = [
        (name, ctypes.c_int32)
        for name in (
            *("major", "minor", "metadata"),
            *("error_create", "future_create", "future_set_available", "future_set_error", "stream_get"),
        )
    ]


def layout_of(header: str) -> _Layout:
    """The offsets of the functions in the text of xla/ffi/api/c_api.h.  ImportError for a header that is not understood."""
    versions = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header, re.MULTILINE))
    table = header.partition("struct XLA_FFI_Api {")[2].partition("};")[0]
    if versions.get("MAJOR") != "0" or "XLA_FFI_Error_Create" not in table:
        raise ImportError(f"its FFI has version {versions.get('MAJOR')}.{versions.get('MINOR')}, which is not known here")
    start = 3 * _POINTER  # its size, extensions, internal functions
    if "XLA_FFI_Api_Version" in table:
        start += 3 * _POINTER
    functions = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\);", table)

    def place(function: str) -> int:
        return start + _POINTER * functions.index(function) if function in functions else 0

    return _Layout(
        0,
        int(versions["MINOR"]),
        int("XLA_FFI_Metadata_Extension" in header),
        place("XLA_FFI_Error_Create"),
        place("XLA_FFI_Future_Create"),
        place("XLA_FFI_Future_SetAvailable"),
        place("XLA_FFI_Future_SetError"),
        place("XLA_FFI_Stream_Get"),
    )


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
        layout = layout_of(header.read_text())
        library = ctypes.CDLL(str(_path))
    except (OSError, ImportError) as error:
        raise ImportError(f"hvd.jax inside jit does not work with this jaxlib ({VERSION}): {error}") from None
    library.hvd_jax_configure.restype = ctypes.c_char_p
    problem = library.hvd_jax_configure(ctypes.byref(layout)).decode()
    if problem:
        raise ImportError(f"hvd.jax: {problem}")
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

    JAX passes the token of an ordered effect from each program to the next, and the token of a failed program is a permanent
    error.  JAX forgets tokens only together with everything else (clear_backends).
    """
    try:
        from jax._src.dispatch import runtime_tokens

        runtime_tokens.clear()
    except (ImportError, AttributeError):  # another JAX: the next program reports it
        pass
