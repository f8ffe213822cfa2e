"""DistributedOptimizer for Keras: the user's optimizer, whose apply() first averages the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras

from hvd._local_layers import local_variables
from hvd._native import Average
from hvd.keras import _backend
from hvd.keras._backend import Compression, Reduction
from hvd.process_sets import ProcessSet, global_process_set

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer", "load_model"]

_LossScaling: Any = getattr(keras.optimizers, "LossScaleOptimizer", None)

if TYPE_CHECKING:
    _Base = Any
else:
    _Base = object  # the user's class follows it in every class that is made of it


class _Passes:
    """Gradients of several backward passes, added up outside of any graph (torch; TensorFlow has its own)."""

    def __init__(self, passes: int, average: bool) -> None:
        self.passes, self.average = passes, average
        self._begun: dict[tuple[int, ...], tuple[int, list[Any]]] = {}  # by the variables: count and sums

    def add(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any] | None:
        """The sums, at every passes-th call for these variables."""
        which = tuple(map(id, variables))
        count, have = self._begun.pop(which, (0, [None] * len(grads)))
        sums = [old if new is None else (new + 0 if old is None else old + new) for old, new in zip(have, grads)]
        if count + 1 < self.passes:
            self._begun[which] = count + 1, sums
            return None
        return [None if total is None else total / self.passes for total in sums] if self.average else sums


class _Distributed(_Base):  # type: ignore[misc]
    _hvd_reduction: Reduction
    _hvd_passes: Any  # None, a _Passes, or TensorFlow's Aggregation

    def register_local_var(self, var: Any) -> None:
        """A variable whose gradient stays this rank's."""
        self._hvd_reduction.local.add(id(var))

    def _hvd_step(self, grads: Sequence[Any], variables: Sequence[Any], apply: Any) -> Any:
        passes = self._hvd_passes
        if passes is None:
            return apply(self._hvd_reduction(grads, variables))
        if isinstance(passes, _Passes):
            sums = passes.add(grads, variables)
            return None if sums is None else apply(self._hvd_reduction(sums, variables))

        def applied(sums: list[Any]) -> Any:
            return apply(self._hvd_reduction(sums, variables))

        done = passes.step(grads, variables, applied)
        if not _backend.in_graph():
            return None
        _backend.initialise_later(passes.variables())
        return done


class _Keras3(_Distributed):
    def apply(self, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        """The user's optimizer's apply(), with the gradients of all ranks."""
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if not self.built:
            self.build(variables)
        above = super().apply
        return self._hvd_step(list(grads), variables, lambda reduced: above(reduced, variables, **kwargs))


class _ScalesLoss(_Keras3):
    """A LossScaleOptimizer's stateless_apply(), which compiled steps of JAX call, does not go through its apply()."""

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """Keras' own, which looks for overflows in the gradients of all ranks."""
        reduced = self._hvd_reduction(list(grads), self._trainable_variables)
        return super().stateless_apply(optimizer_variables, reduced, trainable_variables)


class _Keras2(_Distributed):
    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's apply_gradients(), with the gradients of all ranks."""
        grads, variables = zip(*grads_and_vars)
        above = super().apply_gradients
        if self._hvd_passes is not None:
            self._create_all_weights(variables) if hasattr(self, "_create_all_weights") else self.build(variables)
        return self._hvd_step(grads, variables, lambda reduced: above(zip(reduced, variables), *args, **kwargs))


_classes: dict[type, type] = {}


def _distributed_class(base: type) -> type:
    """The user's class with one of ours in front.  Its name and module stay, so that saved models load without hvd."""
    if base not in _classes:
        mixin: type = _Keras3 if hasattr(base, "apply") else _Keras2
        if mixin is _Keras3 and _LossScaling is not None and issubclass(base, _LossScaling):
            mixin = _ScalesLoss
        _classes[base] = type(base.__name__, (mixin, base), {"__module__": base.__module__, "__doc__": base.__doc__})
    return _classes[base]


def _loss_scaled(optimizer: Any) -> Any:
    """With the policy mixed_float16, compile() puts a LossScaleOptimizer around ours.  It applies gradients only where they
    are finite, which ranks would decide differently: so it goes inside, and sees the gradients of all ranks."""
    policy = getattr(getattr(keras, "config", None), "dtype_policy", None)
    if _LossScaling is None or policy is None or isinstance(optimizer, _LossScaling) or policy().name != "mixed_float16":
        return optimizer
    return _LossScaling(optimizer, name="loss_scale_optimizer")


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer of the same class that averages the gradients over all ranks before it applies them.

    It shares the given optimizer's state.  On Keras 3 (TensorFlow, torch and JAX backends) and Keras 2.

    compression: hvd.keras.Compression.none or .fp16.
    backward_passes_per_step: how many gradients are added up before a step (not in JAX's compiled steps);
    average_aggregated_gradients: and divided by that.
    gradient_predivide_factor: divides by it before the sum and by size / it afterwards; Average only.
    groups, num_groups: gradients that run together (TensorFlow; elsewhere libhvd fuses by itself).
    name, device_dense and device_sparse are accepted as in Horovod.
    """
    if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step!r}: it must be at least 1")
    if not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"an optimizer is needed, not a {type(optimizer).__name__}")
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is distributed already")
    passes: Any = None
    if backward_passes_per_step > 1:
        if _backend.NAME == "tensorflow":
            from hvd.tensorflow._gradient_reduction import Aggregation

            passes = Aggregation(backward_passes_per_step, average_aggregated_gradients)
        elif _backend.NAME == "torch":
            passes = _Passes(backward_passes_per_step, average_aggregated_gradients)
        else:
            raise ValueError("backward_passes_per_step works on TensorFlow and torch; see Keras' gradient_accumulation_steps")
    chosen = num_groups if groups is None and num_groups else groups
    call = (op, gradient_predivide_factor, chosen, process_set, scale_local_gradients)
    reduction = Reduction(compression, sparse_as_dense, *call)
    inner = _loss_scaled(optimizer)
    made: Any = object.__new__(_distributed_class(type(inner)))
    object.__setattr__(made, "__dict__", inner.__dict__)
    made.__dict__["_hvd_reduction"] = reduction  # not by setattr: Keras tracks what it is given
    made.__dict__["_hvd_passes"] = passes
    return made


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """DistributedOptimizer that leaves the gradients of local_layers (a layer or a list, built already) to this rank."""
    local = local_variables(local_layers)
    made = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for variable in local:
        made.register_local_var(variable)
    return made


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """keras.models.load_model, whose model has its optimizer, with the state that was saved, made distributed.

    custom_optimizers, custom_objects: classes that Keras does not know.  legacy_opts is accepted as in Horovod.
    """
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model
