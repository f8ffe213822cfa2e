"""The op library: loading it, the names of its operations, and its errors as hvd's.

Names.  Ranks match tensors by name.  TensorFlow runs ops in any order, so names must not depend on that order.  In a
graph, a name is made when the op is added.  The name is the caller's, or the traced function's with a count of the
operations in it.  Tracing follows the program, which ranks share.  So a rank that traces a function again (for another
shape) uses the same names.  In eager execution, operations run in the program's order, and libhvd counts them.

Places.  Ops run on the CPU, and TensorFlow copies tensors from other devices.  HVD_TENSORFLOW_GPU=1 also registers kernels
for GPUs, of the ops in ON_GPUS, and TensorFlow decides where those run.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

from hvd import _native
from hvd._runtime import world as _world
from hvd._runtime.arguments import checked_name
from hvd.exceptions import HorovodInternalError
from hvd.process_sets import ProcessSet, number_of

F = TypeVar("F", bound=Callable[..., Any])
CPU = "/device:CPU:0"
_path = Path(_native.__file__).parent / "libhvd_tensorflow.so"


def _on_gpus(library: ctypes.CDLL) -> frozenset[str]:
    """The ops that have kernels for GPUs.  Prints once, on stderr, if they were requested and are not available."""
    problem = ctypes.c_char_p()
    if not library.hvd_tensorflow_gpu(ctypes.byref(problem)):
        return frozenset()
    if problem.value:
        why = f"HVD_TENSORFLOW_GPU: {problem.value.decode()}; tensors on a GPU are copied to the host"
        print(f"hvd.tensorflow: {why}", file=sys.stderr, flush=True)
        return frozenset()
    return frozenset({"allreduce", "broadcast"})


def last_failure() -> str:
    """The message of our last failed kernel, which TensorFlow embeds in its own text; "" without a failure."""
    text = ctypes.create_string_buffer(4096)
    ctypes.CDLL(str(_path)).hvd_tensorflow_failure(text, ctypes.c_size_t(len(text)))
    return text.value.decode(errors="replace")


def _load() -> tuple[Any, bool, bool, frozenset[str]]:
    ops = tf.load_op_library(str(_path))
    library = ctypes.CDLL(str(_path))
    library.hvd_tensorflow_problem.restype = ctypes.c_char_p
    problem = library.hvd_tensorflow_problem().decode()
    if problem:
        raise ImportError(f"hvd.tensorflow: {problem} (this is TensorFlow {tf.__version__})")
    atexit.register(library.hvd_tensorflow_exiting)
    return ops, bool(library.hvd_tensorflow_asynchronous()), bool(library.hvd_tensorflow_float8()), _on_gpus(library)


_ops, ASYNCHRONOUS, FLOAT8, ON_GPUS = _load()


def _run_side_by_side() -> None:
    """Keeps tf.function from running our ops one after the other, as it does with stateful ones.

    Our ops must be stateful; otherwise they are folded and merged.  But they need no order, like TensorFlow's own
    collectives.  So this function adds them to TensorFlow's list of those.  In loops, where one op runs many times, the
    kinds with InOrder in their names keep the order.  If this fails, all ops run in the program's order, which is
    slower but right.  The same holds before TensorFlow 2.13, where the kernels block a thread.
    """
    try:
        from tensorflow.python.framework import auto_control_deps

        names = {f"Hvd{kind.capitalize()}" for kind in _native.KIND_NAMES if kind not in ("barrier", "join")}
        auto_control_deps.ASYNC_STATEFUL_OPS = frozenset(auto_control_deps.ASYNC_STATEFUL_OPS) | names
    except (ImportError, AttributeError):
        pass


if ASYNCHRONOUS:
    _run_side_by_side()


def unconverted(function: F) -> F:
    """Excludes a function that users call inside tf.function, and its callees, from AutoGraph's conversion."""
    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]


class _Usage(tf.errors.InvalidArgumentError, ValueError):  # type: ignore[misc]
    pass


class _Mismatch(tf.errors.FailedPreconditionError, HorovodInternalError):  # type: ignore[misc]
    code = "mismatch"


class _PeerLost(tf.errors.AbortedError, HorovodInternalError):  # type: ignore[misc]
    code = "peer_lost"


class _Timeout(tf.errors.DeadlineExceededError, HorovodInternalError):  # type: ignore[misc]
    code = "timeout"


class _Internal(tf.errors.UnknownError, HorovodInternalError):  # type: ignore[misc]
    code = "internal"


def translated(error: Any) -> Exception:
    """hvd's exception for one of TensorFlow's that our op raised; it also has TensorFlow's class."""
    for kind in (_Usage, _Mismatch, _PeerLost, _Timeout, _Internal):
        if isinstance(error, kind.__mro__[1]):
            return kind(None, None, error.message)
    return error  # type: ignore[no-any-return]


def bits(factor: float) -> int:
    """A factor for the ops: the bits of a double, since their floats have 32."""
    return int(struct.unpack("<q", struct.pack("<d", float(factor)))[0])


def factor(value: int) -> float:
    """The inverse of bits()."""
    return float(struct.unpack("<d", struct.pack("<q", value))[0])


def gradient_of(op: str) -> Callable[[F], F]:
    """Registers a gradient for both kinds of an op."""

    def register(function: F) -> F:
        for name in (op, op + "InOrder"):
            tf.RegisterGradient(name)(function)
        return function

    return register


# Process sets by the id in a graph, for gradients.
_sets: dict[int, ProcessSet] = {}


def set_id(process_set: ProcessSet) -> int:
    """The id of a process set.  ValueError if the set has not been added."""
    number = number_of(process_set)
    if number is None:
        raise ValueError("this process set does not exist (anymore): see add_process_set")
    _sets[number] = process_set
    return number


def set_of(number: int) -> ProcessSet:
    """The set with that id, with which one of our ops was made."""
    return _sets[number]


def _function_graph(graph: Any) -> Any:
    """The graph of the traced function that contains a branch or a loop's body."""
    while type(graph).__name__ != "FuncGraph" and getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph


def _in_control_flow(graph: Any) -> bool:
    """Returns whether ops in the graph may run several times, or not at all, in one step."""
    while graph is not None:
        if hasattr(graph, "outer_graph") and type(graph).__name__ != "FuncGraph":
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def operation_name(graph: Any, kind: str, name: str | None) -> str:
    """The name for the next operation in a graph."""
    graph = _function_graph(graph)
    counts: dict[str, int] | None = getattr(graph, "_hvd_names", None)
    if counts is None:
        counts = graph._hvd_names = {}
    if name is None:
        # Forward and backward functions have a number that depends on how much this process has traced.
        function = re.sub(r"^__(inference|forward|backward)_(.*?)(_\d+)?$", r"\1_\2", getattr(graph, "name", "") or "graph")
        name = f"{function}/{kind}"
        again = counts[name] = counts.get(name, 0) + 1
        return f"{name}.{again - 1}"
    again = counts[name] = counts.get(name, 0) + 1
    return name if again == 1 else f"{name}_{again - 1}"


def call(op: str, name: str | None, *, first_dimension: bool = False, tensors: Sequence[Any] = (), **attributes: Any) -> Any:
    """Runs an op of the library (or adds it to the graph).  Its results have the tensors' shapes, except the first dimension
    if first_dimension is set.

    Errors: ValueError and HorovodInternalError, at once in eager execution.  In a graph TensorFlow raises its own errors at
    run time: InvalidArgumentError, FailedPreconditionError (ranks disagree), AbortedError (a peer is gone).
    """
    checked_name(name)
    _world.admit()
    eager = tf.executing_eagerly()
    if tensors:
        attributes["tensors"] = list(tensors)
    if eager:
        try:
            return getattr(_ops, "hvd_" + op)(tensor_name=name or "", blocking=True, **attributes)
        except tf.errors.OpError as error:
            raise translated(error) from None
    graph = tf.compat.v1.get_default_graph()
    function = getattr(_ops, f"hvd_{op}_in_order" if _in_control_flow(graph) else f"hvd_{op}")
    with nullcontext() if op in ON_GPUS else tf.device(CPU):
        results = function(tensor_name=operation_name(graph, op, name), blocking=False, **attributes)
    if graph.building_function and op != "barrier":
        with tf.device(CPU), tf.control_dependencies(list(results)):
            _ops.hvd_keep()
    for tensor, result in zip(tensors, results if isinstance(results, list) else []):
        shape = tensor.shape
        if first_dimension and shape.rank is not None:
            shape = tf.TensorShape([None]).concatenate(shape[1:])
        result.set_shape(shape)
    return results


def world(what: int, name: str | None = None, process_set: int = 0) -> tf.Tensor:
    """A number of this rank's place when the graph runs: [] int32."""
    _world.admit()
    return _ops.hvd_world(what=what, process_set=process_set, name=name)
