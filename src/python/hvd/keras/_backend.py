"""The parts that depend on Keras' backend: TensorFlow, torch or JAX; Keras 2 has only TensorFlow."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hvd import numpy as _numpy
from hvd._elastic import shares as _shares
from hvd._keras_package import LEGACY, keras
from hvd._native import ALLREDUCE, Sum
from hvd._runtime import environment as _environment
from hvd._runtime.arguments import checked_predivide
from hvd._runtime.requests import Operation
from hvd.process_sets import ProcessSet, global_process_set, number_of

NAME: str = keras.backend.backend()

if NAME == "tensorflow":
    from hvd.tensorflow.compression import Compression
elif NAME == "torch":
    from hvd.torch.compression import Compression  # type: ignore[assignment]
else:
    from hvd.jax.compression import Compression  # type: ignore[assignment]


_Callback: Any = keras.callbacks.Callback


class Callback(_Callback):  # type: ignore[misc]
    """A callback of the Keras in this process."""

    if hasattr(keras, "ops"):

        def _implements_train_batch_hooks(self) -> bool:
            """Keras 2 calls this first; Keras 3 has no such method."""
            raise TypeError(
                f"hvd's {type(self).__name__} is one of Keras 3, but this model is one of Keras 2: set {LEGACY}=1 before"
                " TensorFlow and hvd are imported"
            )


def in_graph() -> bool:
    """Returns whether Keras 2 builds a TF1-style graph: values are in the session.  False while a tf.function is traced."""
    if hasattr(keras, "ops"):
        return False
    import tensorflow as tf

    return not tf.compat.v1.executing_eagerly_outside_functions()


def initialise_later(variables: Sequence[Any]) -> None:
    """In a graph: adds the variables to those that Keras 2 initialises before it runs anything."""
    try:
        backend = importlib.import_module(f"{keras.__name__}.src.backend")
    except ImportError:  # before TensorFlow 2.13
        backend = keras.backend
    for variable in variables:
        backend.track_variable(variable)


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """A copy of the backend's value, tensor or variable as an array."""
    if hasattr(value, "graph") and in_graph():
        return np.array(keras.backend.get_value(value))
    convert = getattr(getattr(keras, "ops", None), "convert_to_numpy", None)
    if convert is not None and not isinstance(value, (int, float, np.ndarray, list, tuple)):
        return np.array(convert(value))
    return np.array(value.numpy() if hasattr(value, "numpy") else value)


def to_numpy_all(variables: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """to_numpy of each; in a session, in one run."""
    if in_graph():
        return [np.array(value) for value in keras.backend.batch_get_value(list(variables))]
    return [to_numpy(variable) for variable in variables]


def assign(variables: Sequence[Any], values: Sequence[np.ndarray[Any, Any]]) -> None:
    """Overwrites variables."""
    if in_graph():
        keras.backend.batch_set_value(list(zip(variables, values)))
        return
    for variable, value in zip(variables, values):
        variable.assign(value)


def broadcast_variables(variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrites variables with root_rank's at once, so not in a traced function.  The same list on all ranks."""
    arrays = to_numpy_all(variables)
    # As bytes, because NumPy has no bfloat16.
    flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    names = [f"keras.variables.{i}" for i in range(len(flat))]
    collectives = _numpy._collectives
    collectives.synchronize(collectives.broadcast_many_async_(flat, root_rank, names, process_set))
    assign(variables, [data.view(array.dtype).reshape(array.shape) for array, data in zip(arrays, flat)])


def compare_after_batch(callback: Callback, local: set[int]) -> None:
    """See _fit_agreement.after_batch.  Without --agreement, nothing is imported."""
    if _environment.text("HVD_AGREEMENT") != "off":
        from hvd.keras import _fit_agreement

        _fit_agreement.after_batch(callback, local)


def compare_after_training(callback: Callback) -> None:
    """See _fit_agreement.after_training."""
    if _environment.text("HVD_AGREEMENT") != "off":
        from hvd.keras import _fit_agreement

        _fit_agreement.after_training(callback)


class Reduction:
    """The settings for reducing a list of gradients, checked at construction."""

    def __init__(
        self,
        compression: Any,
        sparse_as_dense: bool,
        op: int,
        predivide: float,
        groups: Any,
        process_set: ProcessSet,
        scale_local: bool,
    ) -> None:
        predivide = checked_predivide(predivide, op)
        number_of(process_set)
        self.compression = compression
        self.op = op
        self.predivide = predivide
        self.process_set = process_set
        self.scale_local = scale_local
        self.local: set[int] = set()  # id() of variables whose gradients stay on this rank
        reduce = {"torch": self._torch, "jax": self._jax}.get(NAME, self._tensorflow)
        self._reduce: Callable[[list[Any], list[Any]], list[Any]] = reduce
        if NAME == "tensorflow":
            from hvd.tensorflow._gradient_reduction import Settings, checked_groups

            self._settings = Settings(
                compression, sparse_as_dense, op, predivide, checked_groups(0, groups), process_set, scale_local
            )

    def __call__(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients reduced over all ranks.  None stays None; ranks with None elsewhere wait for each other."""
        _shares.refuse_reduction("DistributedOptimizer")
        results = list(grads)
        size = self.process_set.size()
        if size is None:
            raise ValueError("hvd is not initialised, or this process set was not added: call hvd.init() first")
        shared = [i for i, variable in enumerate(variables) if id(variable) not in self.local]
        if self.scale_local:
            for i in set(range(len(results))).difference(shared):
                results[i] = None if results[i] is None else self._divided(results[i], size)
        alone = size == 1 and not self.process_set.may_change()
        given = [results[i] for i in shared]
        if any(grad is not None for grad in given) and not alone and self.process_set.included():
            for i, out in zip(shared, self._reduce(given, [variables[i] for i in shared])):
                results[i] = out
        return results

    def _divided(self, grad: Any, size: int) -> Any:
        if NAME != "tensorflow":
            return grad / size
        from hvd.tensorflow._gradient_reduction import divided_by_ranks

        return divided_by_ranks(grad, self.process_set)

    # grads may have None, which has its place in the names of the others.

    def _tensorflow(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        from hvd.tensorflow._gradient_reduction import reduce_gradients

        return reduce_gradients(grads, variables, self._settings, prefix="keras")

    def _torch(self, grads: list[Any], _: list[Any]) -> list[Any]:
        from hvd.torch.ops import collectives

        pairs = {i: self.compression.compress(grad) for i, grad in enumerate(grads) if grad is not None}
        operation = Operation(ALLREDUCE, number_of(self.process_set), self.op, 0, 1.0 / self.predivide, self.predivide)
        names = [f"keras.gradients.{i}" for i in pairs]
        # One call for all; each runs as soon as all ranks have it.
        handle = collectives._submit_many(operation, [small for small, _ in pairs.values()], names, in_place=True)
        results: list[Any] = [None] * len(grads)
        for out, (i, (_small, context)) in zip(collectives.synchronize(handle), pairs.items()):
            results[i] = self.compression.decompress(out, context)
        return results

    def _jax(self, grads: list[Any], _: list[Any]) -> list[Any]:
        from hvd.jax.gradients import allreduce_gradients

        names = "keras.gradients"  # inside the compiled step, or outside it
        return allreduce_gradients(  # type: ignore[no-any-return]
            grads, self.compression, self.op, self.predivide, self.process_set, name=names
        )


__all__ = [
    "NAME",
    "Callback",
    "Compression",
    "Reduction",
    "Sum",
    "assign",
    "broadcast_variables",
    "compare_after_batch",
    "compare_after_training",
    "in_graph",
    "to_numpy",
    "to_numpy_all",
]
