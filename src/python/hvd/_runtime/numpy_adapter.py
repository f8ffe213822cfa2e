# mypy: disable-error-code="no-any-return"
"""NumPy arrays and other buffers: for hvd.numpy, and for the frameworks whose tensors become arrays.

Nothing is copied.  memoryview, array.array, bytearray, mmap, bytes and other buffers use the buffer protocol, tensors of
other frameworks DLPack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hvd._native import DTYPES, OPAQUE
from hvd._runtime.requests import View

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
else:
    Array = np.ndarray  # NumPy 1.21 of Ubuntu 22.04 has no types of elements
# dtypes of ml_dtypes, which NumPy lacks.  The adapter finds these dtypes by name, so ml_dtypes is optional.
_ADDED = {name: code for name, code in DTYPES.items() if name.startswith(("bfloat", "float8"))}
CODES = {np.dtype(name): code for name, code in DTYPES.items() if name not in _ADDED}
_ALIGNMENT = 64  # JAX adopts such memory without a copy


class _Capsule:
    """An object in the form that numpy.from_dlpack requires."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the host


def as_array(tensor: Any) -> Array:
    """The memory of tensor as an array.  TypeError with advice if it has no such memory."""
    if tensor.__class__ is np.ndarray:
        return tensor
    if isinstance(tensor, np.ma.MaskedArray):
        raise TypeError("a masked array's mask would be lost: give array.filled(value), and its mask by itself")
    if isinstance(tensor, np.ndarray):
        return tensor
    if isinstance(tensor, np.generic):
        return np.asarray(tensor)
    if hasattr(tensor, "__dlpack__"):
        try:
            return np.from_dlpack(tensor)
        except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            kind = type(tensor).__name__
            raise TypeError(f"NumPy cannot see the memory of this {kind} ({error}): give an array of its values") from None
    try:
        return np.asarray(memoryview(tensor))
    except TypeError:
        hint = ""
        if isinstance(tensor, (list, tuple, bool, int, float, complex)):
            hint = ": a Python value has no dtype that the ranks could agree on, so write numpy.array(value, dtype)"
        message = f"a numpy.ndarray, a buffer or a DLPack tensor is needed, not a {type(tensor).__name__}{hint}"
        raise TypeError(message) from None


class NumpyAdapter:
    """Adapter[numpy.ndarray, and the types that as_array takes]."""

    framework = "numpy"

    def view(self, tensor: Any, writes: bool = False) -> View | None:
        array = as_array(tensor)
        code = CODES.get(array.dtype)
        shape = array.shape
        if code is None:
            code, shape = self._uncommon(array)
            if code < 0:
                return None  # the other byte order
        flags = array.flags
        if writes and not flags.writeable:
            raise ValueError(f"this {type(tensor).__name__} is read-only, and the operation writes its result into it")
        if not (flags.c_contiguous and flags.aligned):
            return None
        return array.ctypes.data, code, shape, -1

    def view_to_write(self, tensor: Any) -> View | None:
        return self.view(tensor, True)

    @staticmethod
    def _uncommon(array: Array) -> tuple[int, tuple[int, ...]]:
        """dtype and shape for libhvd; a dtype of -1 if the array must be packed first.  Other numbers and dates: bytes."""
        dtype = array.dtype
        if dtype.name in _ADDED:
            return _ADDED[dtype.name], array.shape
        if dtype.newbyteorder("=") in CODES:
            return -1, ()
        if not dtype.hasobject and dtype.itemsize and (dtype.kind in "uifcmM" or dtype.name.startswith("float")):
            return (OPAQUE, (*array.shape, dtype.itemsize)) if dtype.isnative else (-1, ())
        raise ValueError(f"arrays of {dtype} cannot be exchanged (possible: {', '.join(DTYPES)})")

    def pack(self, tensor: Any) -> Array:
        array = as_array(tensor)
        return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)

    def like(self, tensor: Any) -> Array:
        array = as_array(tensor)
        room = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
        start = -room.ctypes.data % _ALIGNMENT
        return room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)

    def assign(self, into: Any, value: Array) -> None:
        as_array(into)[...] = value

    def integers(self, values: tuple[int, ...], like: Any) -> Array:
        integer = isinstance(like, np.ndarray) and like.dtype.kind in "iu"
        return np.array(values, dtype=like.dtype if integer else np.int32)

    def adopt(self, capsule: Any, shape: tuple[int, ...], like: Any) -> Array:
        flat = np.from_dlpack(_Capsule(capsule))
        dtype = as_array(like).dtype.newbyteorder("=")
        if dtype not in CODES and dtype.name not in _ADDED:
            shape = shape[:-1]  # travelled as bytes
        tensor = flat.view(dtype).reshape(shape)
        return tensor if tensor.flags.writeable else tensor.copy()  # before 2.1, NumPy's DLPack arrays are read-only
