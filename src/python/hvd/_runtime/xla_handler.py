"""Our handler in XLA's FFI: reads the layout of an XLA's interface, and loads the handler's library.

The library is compiled without XLA.  XLA's C interface keeps its structs.  Only the functions in one table have moved between
versions.  This module reads the offsets of these functions from the header of the package that contains XLA: jaxlib or
TensorFlow.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from hvd import _native

__all__ = ["TARGET", "load", "place_of"]

TARGET = "hvd_operation"
_path = Path(_native.__file__).parent / "libhvd_jax.so"
_POINTER = 8
_configured: bytes | None = None


def _table(header: str) -> str:
    return header.partition("struct XLA_FFI_Api {")[2].partition("};")[0]


def place_of(function: str, header: str) -> int:
    """The function's place in XLA's table, in bytes from its beginning; 0 if the header has no such function."""
    start = 3 * _POINTER  # its size, extensions, internal functions
    if "XLA_FFI_Api_Version" in _table(header):
        start += 3 * _POINTER
    functions = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\);", _table(header))
    return start + _POINTER * functions.index(function) if function in functions else 0


class _Layout(ctypes.Structure):
    """hvd::jax::XlaLayout."""

    _fields_ = [
        (name, ctypes.c_int32)
        for name in (
            *("major", "minor", "metadata"),
            *("error_create", "future_create", "future_set_available", "future_set_error", "stream_get"),
        )
    ]


def _layout_of(header: str) -> _Layout:
    """The offsets of the functions in the text of xla/ffi/api/c_api.h.  ImportError for a header that is not understood."""
    versions = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header, re.MULTILINE))
    if versions.get("MAJOR") != "0" or "XLA_FFI_Error_Create" not in _table(header):
        raise ImportError(f"its FFI has version {versions.get('MAJOR')}.{versions.get('MINOR')}, which is not known here")
    return _Layout(
        0,
        int(versions["MINOR"]),
        int("XLA_FFI_Metadata_Extension" in header),
        place_of("XLA_FFI_Error_Create", header),
        place_of("XLA_FFI_Future_Create", header),
        place_of("XLA_FFI_Future_SetAvailable", header),
        place_of("XLA_FFI_Future_SetError", header),
        place_of("XLA_FFI_Stream_Get", header),
    )


def load(header: str) -> ctypes.CDLL:
    """The library, ready for the XLA of this header.  Errors: ImportError with the reason; OSError without the library."""
    global _configured
    layout = _layout_of(header)
    if _configured not in (None, bytes(layout)):
        raise ImportError("the process has another XLA, of JAX or TensorFlow, with another FFI: use one of them with hvd")
    _configured = bytes(layout)
    library = ctypes.CDLL(str(_path))
    library.hvd_jax_configure.restype = ctypes.c_char_p
    problem = library.hvd_jax_configure(ctypes.byref(layout)).decode()
    if problem:
        raise ImportError(problem)
    return library
