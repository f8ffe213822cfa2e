"""DistributedOptimizer for Keras: the user's optimizer, whose apply() first averages the gradients of all ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hvd._keras_package import keras
from hvd._native import Average
from hvd._runtime.local_layers import local_variables
from hvd.keras import _backend
from hvd.keras._backend import Compression, Reduction
from hvd.process_sets import ProcessSet, global_process_set

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer", "load_model"]

_LossScaling: Any = getattr(keras.optimizers, "LossScaleOptimizer", None)

if TYPE_CHECKING:
    _Base = Any
else:
    _Base = object  # the user's class follows it in every derived class


class _Passes:
    """Sums of the gradients of several backward passes outside of graphs (torch; TensorFlow has its own)."""

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

    def forget(self) -> None:
        """Begins again with the first pass."""
        self._begun.clear()


def _passes(passes: int, average: bool) -> Any:
    """The object that sums gradients; None for a single pass."""
    if passes == 1:
        return None
    if _backend.NAME != "tensorflow":
        return _Passes(passes, average)
    from hvd.tensorflow._gradient_reduction import Aggregation

    return Aggregation(passes, average)


class _Distributed(_Base):  # type: ignore[misc]
    _hvd_reduction: Reduction
    _hvd_passes: Any  # None, a _Passes, or TensorFlow's Aggregation
    _hvd_reduces = True  # False: a surrounding LossScaleOptimizer reduces, with the same _hvd_reduction
    _hvd_settings: Callable[[], dict[str, Any]]  # makes _hvd_reduction and _hvd_passes for another optimizer of this class

    @classmethod
    def from_config(cls, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The distributed form of the user's class's from_config()."""
        made = super().from_config(config, *args, **kwargs)
        made.__dict__.update(cls._hvd_settings())
        return made

    @property
    def _agg_helper(self) -> Any:
        """Horovod's name for the summing object; its tests look at the counter in it."""
        return self._hvd_passes

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradient of a variable on this rank."""
        self._hvd_reduction.local.add(id(var))

    def _hvd_reduced(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any] | None:
        """The reduced gradients.  None, or with TensorFlow the sums so far, if more passes must come first."""
        passes = self._hvd_passes
        if not self._hvd_reduces:
            return list(grads)
        if passes is None:
            return self._hvd_reduction(grads, variables)
        if isinstance(passes, _Passes):
            sums = passes.add(grads, variables)
            return None if sums is None else self._hvd_reduction(sums, variables)
        reduced: list[Any] = passes.reduced(grads, variables, lambda sums: self._hvd_reduction(sums, variables))
        if _backend.in_graph():
            _backend.initialise_later(passes.variables())
        return reduced

    def _hvd_step(self, reduced: list[Any] | None, apply: Callable[[list[Any]], Any]) -> Any:
        """Calls apply with the result of _hvd_reduced(); only counts after a pass that just adds up."""
        if self._hvd_passes is None:
            assert reduced is not None
            return apply(reduced)
        if isinstance(self._hvd_passes, _Passes):
            return self._hvd_count() if reduced is None else apply(reduced)
        assert reduced is not None
        done = self._hvd_passes.when_due(reduced, functools.partial(apply, reduced), self._hvd_count)
        return done if _backend.in_graph() else None

    def _hvd_count(self) -> Any:
        """Counts a pass without a step as an iteration too: schedules of the learning rate count batches."""
        counting: Any = getattr(self, "inner_optimizer", self)
        return counting._iterations.assign_add(1)


class _CallableList(list):  # type: ignore[type-arg]
    def __call__(self) -> _CallableList:
        return self


class _Keras3(_Distributed):
    @property
    def variables(self) -> Any:
        """The user's optimizer's list; variables() also works, as in older versions of Keras."""
        return _CallableList(super().variables)

    def apply(self, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        """The user's optimizer's apply(), with reduced gradients."""
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if not self.built:
            self.build(variables)
        above = super().apply
        return self._hvd_step(self._hvd_reduced(list(grads), variables), lambda reduced: above(reduced, variables, **kwargs))


class _ScalesLoss(_Keras3):
    """A LossScaleOptimizer that steps only if the gradients of all ranks are finite."""

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """Keras' own method; compiled steps of JAX call it in place of apply()."""
        reduced = self._hvd_reduced(list(grads), self._trainable_variables)
        return super().stateless_apply(optimizer_variables, reduced, trainable_variables)

    def _hvd_reduced(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any] | None:
        local = self._hvd_reduction.local
        return super()._hvd_reduced(_with_overflows(grads, variables, local) if local else grads, variables)


def _with_overflows(grads: Sequence[Any], variables: Sequence[Any], local: set[int]) -> list[Any]:
    """Adds a NaN to a reduced gradient, if a gradient that stays on this rank has an overflow.  So all ranks notice it."""
    results = list(grads)
    is_dense = [grad is not None and not _is_sparse(grad) for grad in grads]
    shared = [i for i, v in enumerate(variables) if is_dense[i] and id(v) not in local]
    if not shared:
        return results
    for grad, variable in zip(grads, variables):
        if grad is not None and id(variable) in local:
            values = grad.values if _is_sparse(grad) else grad
            nothing = keras.ops.sum(keras.ops.multiply(values, 0.0))  # NaN for an infinity
            results[shared[0]] = results[shared[0]] + keras.ops.cast(nothing, results[shared[0]].dtype)
    return results


def _is_sparse(grad: Any) -> bool:
    return _backend.NAME == "tensorflow" and hasattr(grad, "indices")


class _Keras2(_Distributed):
    """minimize() computes gradients, then applies them.  A caller that gets them in between, to clip them, gets reduced ones.
    A caller may apply gradients from other sources too."""

    # True: an earlier call has reduced the gradients of apply_gradients().
    _hvd_computed = False  # compute_gradients() or get_gradients()
    _hvd_aggregated = False  # aggregate_gradients(), after them or by itself
    _hvd_applying = False  # inside the user's optimizer's apply_gradients(), which may aggregate reduced gradients

    def _hvd_compute(self, pairs: Any) -> Any:
        grads, variables = zip(*pairs)
        reduced = self._hvd_reduced(grads, variables)
        if self._hvd_passes is not None and getattr(self, "_is_wrapped_by_loss_scale_optimizer", False):
            reduced = self._hvd_passes.zero_until_due(reduced)  # loss scaling decides at each pass
        self.__dict__["_hvd_computed"] = True
        return list(zip(reduced or grads, variables))

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        """Pairs of reduced gradient and variable."""
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Any:
        """compute_gradients() of Keras' older optimizers."""
        import tensorflow as tf

        above: Any = super()
        tape = tape or tf.GradientTape()
        if hasattr(above, "_compute_gradients"):
            return self._hvd_compute(above._compute_gradients(loss, var_list, grad_loss, tape=tape))
        return self._hvd_compute(above.compute_gradients(loss, var_list, tape=tape))

    def get_gradients(self, loss: Any, params: Any) -> Any:
        """In a graph: the reduced gradients."""
        return [grad for grad, _ in self._hvd_compute(zip(super().get_gradients(loss, params), params))]

    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """The reduced gradients: Keras 2's loss scaling calls this before it looks for overflows."""
        return self._hvd_aggregate(super().aggregate_gradients(grads_and_vars))

    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """aggregate_gradients() of Keras' older optimizers."""
        above: Any = super()
        return self._hvd_aggregate(above._aggregate_gradients(grads_and_vars))

    def _hvd_aggregate(self, pairs: Any) -> Any:
        pairs = list(pairs)
        if self._hvd_applying or not pairs:
            return pairs
        if not self._hvd_computed:
            pairs = self._hvd_compute(pairs)
        del self.__dict__["_hvd_computed"]  # a skipped step leaves no flag for the next one
        self.__dict__["_hvd_aggregated"] = True
        return pairs

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's apply_gradients(), with reduced gradients."""
        grads, variables = zip(*grads_and_vars)

        def above(pairs: Any) -> Any:
            self.__dict__["_hvd_applying"] = True
            try:
                return super(_Keras2, self).apply_gradients(pairs, *args, **kwargs)
            finally:
                self.__dict__["_hvd_applying"] = False

        if self._hvd_passes is not None:
            self._create_all_weights(variables) if hasattr(self, "_create_all_weights") else self.build(variables)
        done = [self.__dict__.pop(name, False) for name in ("_hvd_computed", "_hvd_aggregated")]
        reduced = list(grads) if any(done) else self._hvd_reduced(grads, variables)
        return self._hvd_step(reduced, lambda reduced: above(zip(reduced, variables)))


def _distributed_class(base: type, settings: Callable[[], dict[str, Any]]) -> type:
    """A subclass of the user's class with ours first.  Name and module stay, so that saved models load without hvd."""
    mixin: type = _Keras3 if hasattr(base, "apply") else _Keras2
    if mixin is _Keras3 and _LossScaling is not None and issubclass(base, _LossScaling):
        mixin = _ScalesLoss
    own = {"__module__": base.__module__, "__doc__": base.__doc__, "_hvd_settings": staticmethod(settings)}
    return type(base.__name__, (mixin, base), own)


def _reduce_outside(outer: Any, inner: Any) -> None:
    """Makes the LossScaleOptimizer distributed instead of the optimizer in it, which from now on only steps.

    Otherwise each rank would decide by its own gradients whether to step, and stepping ranks would wait for the others.
    """
    if not isinstance(outer, _Distributed):
        object.__setattr__(outer, "__class__", _distributed_class(type(outer), type(inner)._hvd_settings))
        outer.__dict__.update(_hvd_reduction=inner._hvd_reduction, _hvd_passes=inner._hvd_passes)
    inner.__dict__.update(_hvd_reduces=False, _hvd_passes=None)


def _watch_loss_scaling() -> None:
    """compile() also makes a LossScaleOptimizer if the model's policy is mixed_float16."""
    made = _LossScaling.__init__

    @functools.wraps(made)
    def init(self: Any, inner_optimizer: Any, *args: Any, **kwargs: Any) -> None:
        made(self, inner_optimizer, *args, **kwargs)
        if isinstance(inner_optimizer, _Distributed):
            _reduce_outside(self, inner_optimizer)

    _LossScaling.__init__ = init


if _LossScaling is not None:
    _watch_loss_scaling()


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

    The new optimizer shares the given optimizer's state.  On Keras 3 (TensorFlow, torch and JAX backends) and Keras 2.

    compression: hvd.keras.Compression.none or .fp16.
    backward_passes_per_step: number of gradients that are added up before a step (not in JAX's compiled steps).
    average_aggregated_gradients: divides the sum by backward_passes_per_step.
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
    if backward_passes_per_step > 1 and _backend.NAME == "jax":
        raise ValueError("backward_passes_per_step works on TensorFlow and torch; see Keras' gradient_accumulation_steps")
    chosen = num_groups if groups is None and num_groups else groups

    def settings() -> dict[str, Any]:
        reduction = Reduction(
            compression, sparse_as_dense, op, gradient_predivide_factor, chosen, process_set, scale_local_gradients
        )
        passes = _passes(backward_passes_per_step, average_aggregated_gradients)
        return {"_hvd_reduction": reduction, "_hvd_passes": passes}

    made: Any = object.__new__(_distributed_class(type(optimizer), settings))
    object.__setattr__(made, "__dict__", optimizer.__dict__)
    made.__dict__.update(settings())  # not by setattr, whose values Keras tracks
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
    """A DistributedOptimizer that keeps the gradients of local_layers (a built layer or a list of them) on this rank."""
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
    """keras.models.load_model; the model's optimizer, with its saved state, is made distributed.

    custom_optimizers, custom_objects: classes that Keras does not know.  legacy_opts is accepted as in Horovod.
    """
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not isinstance(optimizer, _Distributed):  # custom_objects may have made it distributed
        model.optimizer = DistributedOptimizer(optimizer, compression=compression)
    return model
