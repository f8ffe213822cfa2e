"""Allreduce in functions that XLA compiles, with HOROVOD_ENABLE_XLA_OPS=1: jit_compile=True around a whole step.

TensorFlow's C interface has no kernels for XLA.  So the operation is an XlaCallModule of TensorFlow: a program in
StableHLO with a typed custom call.  The call's handler is that of hvd.jax.  TensorFlow's own XLA registers the handler
through XLA's table of functions.
"""

from __future__ import annotations

import atexit
import ctypes
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf

from hvd._native import ALLREDUCE, Average, Sum
from hvd._runtime import environment as _environment
from hvd._runtime import world as _world
from hvd._runtime import xla_handler
from hvd._runtime.arguments import checked_name
from hvd._runtime.xla_handler import TARGET
from hvd.tensorflow import _library

__all__ = ["allreduce", "can_be_compiled"]

_TABLE = "_ZN3xla3ffi12GetXlaFfiApiEv"  # a C++ function without arguments, which returns the table
_VERSION = 9  # of XlaCallModule's form
_TYPES = dict(  # StableHLO's names
    zip(
        ("float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8"),
        ("f16", "bf16", "f32", "f64", "i8", "i32", "i64", "ui8"),
    )
)


class _Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class _Registration(ctypes.Structure):
    """XLA_FFI_Handler_Register_Args."""

    _fields_ = [
        *(("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p), ("name", _Text), ("platform", _Text)),
        *((stage, ctypes.c_void_p) for stage in ("instantiate", "prepare", "initialize", "execute")),
        ("traits", ctypes.c_uint32),
    ]


@cache
def _module() -> Any:
    """The function that makes an XlaCallModule.  Registers the handler.  Errors: RuntimeError with the missing part."""
    folder = Path(str(tf.__file__)).parent
    try:
        from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_call_module

        header = (folder / "include/xla/ffi/api/c_api.h").read_text()
        table = getattr(ctypes.CDLL(str(folder / "libtensorflow_cc.so.2")), _TABLE)
        library = xla_handler.load(header)
    except (OSError, ImportError, AttributeError) as error:
        raise RuntimeError(f"HOROVOD_ENABLE_XLA_OPS=1 does not work with this TensorFlow ({tf.__version__}): {error}") from None
    table.restype = ctypes.c_void_p
    function = ctypes.c_void_p.from_address(table() + xla_handler.place_of("XLA_FFI_Handler_Register", header)).value
    register = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Registration))(function or 0)
    name, execute = TARGET.encode(), ctypes.cast(library.hvd_jax_handler, ctypes.c_void_p)
    about = _Registration(ctypes.sizeof(_Registration), None, _Text(name, len(name)), _Text(b"Host", 4), execute=execute)
    if register(ctypes.byref(about)):
        raise RuntimeError(f"HOROVOD_ENABLE_XLA_OPS=1: TensorFlow {tf.__version__} refuses hvd's handler")
    atexit.register(library.hvd_jax_exiting)
    return xla_call_module


def can_be_compiled(tensors: Sequence[Any], op: int) -> bool:
    """Returns whether XLA can compile the allreduce.  The user must have enabled it, and op must be Sum or Average.  The
    tensors must be in a function, with known shapes."""
    return (
        _environment.flag("HOROVOD_ENABLE_XLA_OPS")
        and not tf.executing_eagerly()
        and op in (Sum, Average)
        and all(tensor.shape.is_fully_defined() and tensor.dtype.base_dtype.name in _TYPES for tensor in tensors)
    )


def _type_of(tensor: tf.Tensor) -> str:
    """StableHLO's type: tensor<2x3xf32>."""
    return "tensor<" + "x".join([*map(str, tensor.shape), _TYPES[tensor.dtype.base_dtype.name]]) + ">"


def _program(types: Sequence[str], operation: str) -> str:
    """A program in StableHLO that calls the handler with values of these types.  The results have the same types."""
    quoted = re.sub(rb'[^ -~]|["\\]', lambda byte: b"\\%02X" % byte[0][0], operation.encode()).decode()
    number = range(len(types))
    parameters = ", ".join(f"%arg{i}: {types[i]}" for i in number)
    arguments, results = ", ".join(f"%arg{i}" for i in number), ", ".join(f"%out#{i}" for i in number)
    kinds = ", ".join(types)
    attributes = f'api_version = 4 : i32, has_side_effect = true, backend_config = {{operation = "{quoted}"}}'
    return f"""
        module @hvd {{
          func.func public @main({parameters}) -> ({kinds}) {{
            %out:{len(types)} = stablehlo.custom_call @{TARGET}({arguments}) {{{attributes}}} : ({kinds}) -> ({kinds})
            return {results} : {kinds}
          }}
        }}"""


def allreduce(
    tensors: Sequence[tf.Tensor], name: str | None, group: bool, op: int, prescale: float, postscale: float, process_set: int
) -> list[tf.Tensor]:
    """The allreduce of the tensors, as one operation of the graph."""
    checked_name(name)
    _world.admit()
    module = _module()
    own = _library.operation_name(tf.compat.v1.get_default_graph(), "allreduce", name)
    numbers = (ALLREDUCE, op, 0, process_set, int(group), float(prescale), float(postscale))
    text = _program([_type_of(tensor) for tensor in tensors], " ".join([*map(repr, numbers), own]))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def reduced(*inputs: tf.Tensor) -> Any:
        shapes, types = [one.shape for one in inputs], [one.dtype for one in inputs]
        with tf.device(_library.CPU):
            outs = module(inputs, version=_VERSION, module=text, Sout=shapes, Tout=types, platforms=["CPU"])

        def gradient(*grads: tf.Tensor) -> list[tf.Tensor]:
            return allreduce(grads, name and f"{name}.gradient", group, op, prescale, postscale, process_set)

        return outs, gradient

    done = reduced(*tensors)
    return list(done) if isinstance(done, (list, tuple)) else [done]
