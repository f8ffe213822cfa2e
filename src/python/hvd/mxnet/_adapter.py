# mypy: disable-error-code="no-any-return"
"""The adapter for MXNet's arrays.  No compiled code: its C API returns the address of their memory.

MXNet's engine computes in the background.  Before the runtime reads an array, its writers must have ended; before it writes
one, its readers too.  Works with MXNet 1.9.
"""

from __future__ import annotations

import ctypes
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from hvd._runtime.numpy_adapter import CODES, NumpyAdapter
from hvd._runtime.requests import View

_CODES = {dtype.type: code for dtype, code in CODES.items()}
_numpy = NumpyAdapter()


class MxnetAdapter:
    """Adapter[mxnet.nd.NDArray]; mxnet.np's arrays are ones too.  Arrays on GPUs go through host memory."""

    framework = "mxnet"

    def view(self, tensor: Any) -> View | None:
        if not isinstance(tensor, mx.nd.NDArray):
            raise TypeError(f"an mxnet.nd.NDArray is needed, not a {type(tensor).__name__}")
        if tensor.stype != "default":
            raise ValueError(f"a dense array is needed, not one of {tensor.stype} storage: use tensor.tostype('default')")
        code = _CODES.get(np.dtype(tensor.dtype).type)
        if code is None:
            raise ValueError(f"arrays of {tensor.dtype} cannot be exchanged (possible: {', '.join(map(str, CODES))})")
        if tensor.context.device_type not in ("cpu", "cpu_pinned", "cpu_shared"):
            return None
        check_call(_LIB.MXNDArrayWaitToWrite(tensor.handle))
        address = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(address)))
        return address.value or 0, code, tensor.shape, -1

    def pack(self, tensor: Any) -> Any:
        return tensor.copyto(mx.cpu())

    def like(self, tensor: Any) -> Any:
        return _typed(mx.nd.empty(tensor.shape, tensor.context, tensor.dtype), tensor)

    def assign(self, into: Any, value: Any) -> None:
        value.copyto(into)

    def integers(self, values: tuple[int, ...], like: Any) -> Any:
        integer = isinstance(like, mx.nd.NDArray) and np.dtype(like.dtype).kind in "iu"
        return mx.nd.array(values, dtype=like.dtype if integer else "int32")

    def adopt(self, capsule: Any, shape: tuple[int, ...], like: Any) -> Any:
        array = _numpy.adopt(capsule, shape, np.empty(0, like.dtype))
        return _typed(mx.nd.array(array, like.context, like.dtype), like)


def _typed(array: Any, like: Any) -> Any:
    return array.as_np_ndarray() if isinstance(like, mx.np.ndarray) else array
