"""Reads the memory of tensors of any framework in place.  Imports no framework.

The package of a tensor's class names its framework.  If a tensor exists, its framework has been imported.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

__all__ = ["address_of", "can_be_overwritten", "copied", "elements_of", "overwrite"]

Array = Any  # NumPy 1.21 of Ubuntu 22.04 has no types of elements


class _Numpy:
    """numpy.ndarray."""

    @staticmethod
    def elements(value: Any) -> tuple[int, int]:
        return (0, 0) if value.dtype.hasobject else (value.size, value.dtype.itemsize)

    @staticmethod
    def address(value: Any) -> tuple[int, Any] | None:
        return (value.__array_interface__["data"][0], value) if value.flags.c_contiguous else None

    @staticmethod
    def part(value: Any, begin: int, end: int) -> Array:
        return value.reshape(-1)[begin:end]

    @staticmethod
    def overwrite(value: Any, array: Array) -> None:
        value[...] = array.reshape(value.shape)


class _Jax:
    """jax.Array.  Arrays that other processes have parts of are shards; keys of jax.random differ between ranks."""

    @staticmethod
    def elements(value: Any) -> tuple[int, int]:
        if isinstance(value, sys.modules["jax"].core.Tracer):
            raise TypeError("hvd.agreement.compare works outside jit: call it after the step, with the step's results")
        itemsize = value.dtype.itemsize if isinstance(value.dtype, np.dtype) else 0
        is_whole = itemsize and value.is_fully_addressable and not value.is_deleted()
        return (value.size, itemsize) if is_whole and value.nbytes == value.size * itemsize else (0, 0)

    @staticmethod
    def address(value: Any) -> tuple[int, Any] | None:
        devices = value.devices()
        if len(devices) != 1 or next(iter(devices)).platform != "cpu":
            return None
        # Unlike an array of NumPy, the address does not keep the next step from using this memory again (donation).
        return value.block_until_ready().unsafe_buffer_pointer(), value

    @staticmethod
    def part(value: Any, begin: int, end: int) -> Array:
        return np.asarray(value.reshape(-1)[begin:end])

    overwrite = None


class _TensorFlow:
    """Variables and eager tensors.  A variable's tensor must be gone before the next step, which would copy it."""

    @staticmethod
    def elements(value: Any) -> tuple[int, int]:
        size = 0 if value.dtype.name in ("string", "resource", "variant") else value.dtype.size
        return value.shape.num_elements() or 0, size

    @staticmethod
    def tensor(value: Any) -> Any:
        tensor = value.read_value() if hasattr(value, "read_value") else value
        if not hasattr(tensor, "numpy"):
            raise TypeError("hvd.agreement.compare works outside tf.function: call it after the step")
        return tensor

    @classmethod
    def address(cls, value: Any) -> tuple[int, Any] | None:
        tensor = cls.tensor(value)
        if not tensor.device.endswith("CPU:0"):
            return None
        array = np.frombuffer(tensor, np.uint8)  # any dtype
        return array.__array_interface__["data"][0], array

    @classmethod
    def part(cls, value: Any, begin: int, end: int) -> Array:
        import tensorflow as tf

        return tf.reshape(cls.tensor(value), [-1])[begin:end].numpy()

    @staticmethod
    def overwrite(value: Any, array: Array) -> None:
        value.assign(array.reshape(value.shape))


class _Mxnet:
    """mxnet.nd.NDArray, and mxnet.np's arrays."""

    @staticmethod
    def elements(value: Any) -> tuple[int, int]:
        return (value.size, np.dtype(value.dtype).itemsize) if value.stype == "default" else (0, 0)

    @staticmethod
    def address(value: Any) -> tuple[int, Any] | None:
        if value.context.device_type not in ("cpu", "cpu_pinned", "cpu_shared"):
            return None
        from mxnet.base import _LIB, check_call

        value.wait_to_read()
        address = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(value.handle, ctypes.byref(address)))
        return address.value or 0, value

    @staticmethod
    def part(value: Any, begin: int, end: int) -> Array:
        return value.reshape(-1)[begin:end].asnumpy()

    @staticmethod
    def overwrite(value: Any, array: Array) -> None:
        value[:] = array.reshape(value.shape)


class _Torch:
    """torch.Tensor, for Keras on torch.  hvd.agreement.watch of hvd.torch does more."""

    @staticmethod
    def elements(value: Any) -> tuple[int, int]:
        from hvd.torch.tensor_windows import is_plain

        return (value.numel(), value.element_size()) if is_plain(value) and not value.is_complex() else (0, 0)

    @staticmethod
    def address(value: Any) -> tuple[int, Any] | None:
        is_one = value.is_cpu and value.is_contiguous() and not value.is_neg()
        return (value.data_ptr(), value) if is_one else None

    @staticmethod
    def part(value: Any, begin: int, end: int) -> Array:
        import torch

        return value.detach().reshape(-1)[begin:end].cpu().view(torch.uint8).numpy()

    @staticmethod
    def overwrite(value: Any, array: Array) -> None:
        import torch

        value.detach().copy_(torch.from_numpy(array).view(value.dtype).reshape(value.shape))


_KINDS: dict[str, Any] = {
    "numpy": _Numpy,
    "jax": _Jax,
    "jaxlib": _Jax,
    "tensorflow": _TensorFlow,
    "mxnet": _Mxnet,
    "torch": _Torch,
}


_known: dict[type, Any] = {}


def _kind(value: Any) -> Any:
    """Returns the functions for tensors of this class; None: the value is not a tensor."""
    of = type(value)
    if of not in _known:
        is_tensor = hasattr(of, "shape") and hasattr(of, "dtype") and not issubclass(of, np.generic)
        packages = [base.__module__.partition(".")[0] for base in of.__mro__] if is_tensor else []
        _known[of] = next((_KINDS[name] for name in packages if name in _KINDS), None)
    return _known[of]


def plain(value: Any) -> Any:
    """The tensor of a Keras variable; any other value as it is."""
    if hasattr(value, "assign") and type(value).__module__.partition(".")[0] in ("keras", "tf_keras"):
        inner = value.value
        return inner() if callable(inner) else inner
    return value


def elements_of(value: Any) -> tuple[int, int]:
    """The number of elements and the bytes of one.  (0, 0): no tensor, or one that is not compared."""
    value = plain(value)
    kind = _kind(value)
    elements, size = (0, 0) if kind is None else kind.elements(value)
    return (elements, size) if elements and size else (0, 0)


def address_of(value: Any) -> tuple[int, Any] | None:
    """Returns the address of the tensor's memory, and an object that keeps it allocated.  None: the memory has gaps, or is not
    host memory."""
    value = plain(value)
    return _kind(value).address(value)  # type: ignore[no-any-return]


def copied(value: Any, begin: int, end: int) -> Array:
    """Returns the elements [begin, end) in host memory, without gaps; for some dtypes as bytes."""
    value = plain(value)
    return np.ascontiguousarray(_kind(value).part(value, begin, end))


def can_be_overwritten(value: Any) -> bool:
    """Returns whether overwrite() supports the value."""
    inner = plain(value)
    if hasattr(value, "assign") or hasattr(inner, "assign"):
        return True
    kind = _kind(inner)
    if kind is _TensorFlow or kind.overwrite is None:
        return False
    return not isinstance(inner, np.ndarray) or inner.flags.writeable


def overwrite(value: Any, array: Array) -> None:
    """Gives the tensor the values of another rank's.  array: all elements, like the result of copied()."""
    inner = plain(value)
    kind = _kind(inner)
    if kind.overwrite is not None and (kind is not _TensorFlow or hasattr(inner, "assign")):
        kind.overwrite(inner, array)
    else:
        value.assign(array.reshape(inner.shape))
