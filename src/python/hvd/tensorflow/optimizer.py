"""DistributedOptimizer for TF1-style optimizers; delegates to the Keras one for Keras optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hvd._native import Adasum, Average
from hvd.process_sets import ProcessSet, global_process_set
from hvd.tensorflow._gradient_reduction import Aggregation, Settings, checked_groups, key, reduce_gradients
from hvd.tensorflow._library import unconverted
from hvd.tensorflow.compression import Compression, Compressor

__all__ = ["DistributedOptimizer"]


class _GraphOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer around the user's, which reduces the gradients."""

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, settings: Settings, aggregation: Aggregation
    ) -> None:
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._hvd_settings = settings
        self._hvd_aggregation = aggregation
        self._hvd_local: set[Any] = set()
        self._hvd_computed = False  # by compute_gradients(); apply_gradients() then does not reduce

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradient of a variable on this rank."""
        self._hvd_local.add(key(var))

    def _reduced(self, grads: Any, variables: Any) -> list[Any]:
        return reduce_gradients(grads, variables, self._hvd_settings, frozenset(self._hvd_local))

    @unconverted
    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The gradients of the user's optimizer, reduced over all ranks.

        With several passes: the sums so far, until they are reduced.  With Adasum, apply_gradients() reduces instead.
        """
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if self._hvd_settings.op == Adasum or not pairs:
            return pairs
        grads, variables = zip(*pairs)
        self._hvd_computed = True
        return list(zip(self._summed(grads, variables), variables))

    def _summed(self, grads: Any, variables: Any) -> list[Any]:
        if self._hvd_aggregation.passes == 1:
            return self._reduced(grads, variables)
        if self._hvd_settings.op == Adasum:
            return self._hvd_aggregation.reduced(grads, variables, lambda sums: sums)
        return self._hvd_aggregation.reduced(grads, variables, lambda sums: self._reduced(sums, variables))

    @unconverted
    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """The user's optimizer's method; it steps in every backward_passes_per_step-th call."""
        pairs = list(grads_and_vars)
        computed, self._hvd_computed = self._hvd_computed, False

        def apply(pairs: list[Any]) -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        def step() -> Any:
            return self._adasum_step(pairs, apply) if self._hvd_settings.op == Adasum else apply(pairs)

        if self._hvd_aggregation.passes == 1:
            return step()
        grads, variables = zip(*pairs)
        if not computed:
            grads = tuple(self._summed(grads, variables))
            pairs = list(zip(grads, variables))
        return self._hvd_aggregation.when_due(grads, step, lambda: _count(global_step))

    def _adasum_step(self, pairs: list[Any], step: Callable[[list[Any]], Any]) -> Any:
        """Runs the user's step with this rank's own gradients, then sets start + Adasum of the changes.

        See hvd.torch._optimizer.adasum_update.
        """
        variables = [v for grad, v in pairs if grad is not None and key(v) not in self._hvd_local]
        # Copies, because reading a variable may return its own memory, which the step overwrites.
        starts = [tf.raw_ops.DeepCopy(x=v.read_value()) for v in variables]
        with tf.control_dependencies(starts):
            stepped = step(pairs)
        after = [] if stepped is None else [stepped]
        with tf.control_dependencies(after):
            changes = [v.read_value() - start for v, start in zip(variables, starts)]
        reduced = self._reduced(changes, variables)
        return tf.group(*after, *[v.assign(start + change) for v, start, change in zip(variables, starts, reduced)])

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's method."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's method."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's method."""
        return self._optimizer.variables(*args, **kwargs)


def _count(step: Any) -> Any:
    """Counts a pass without a step as well, as in Horovod: schedules of the learning rate count passes."""
    return tf.no_op() if step is None else step.assign_add(1).op


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer that averages the gradients over all ranks before it uses them.

    optimizer: a tf.compat.v1.train.Optimizer, or a Keras optimizer (then see hvd.keras.DistributedOptimizer).
    backward_passes_per_step: number of passes that are added up before a step; average_aggregated_gradients: the sum is
    divided by that number.
    op: Adasum with a tf.compat.v1 optimizer reduces the changes of a step on this rank's own gradients.
    The other arguments are DistributedGradientTape's.
    """
    chosen = checked_groups(num_groups, groups)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        call = (op, gradient_predivide_factor, chosen, process_set, scale_local_gradients)
        settings = Settings(compression, sparse_as_dense, *call)
        aggregation = Aggregation(backward_passes_per_step, average_aggregated_gradients)
        return _GraphOptimizer(optimizer, name, use_locking, settings, aggregation)
    from hvd.keras import DistributedOptimizer as for_keras

    return for_keras(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=chosen,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
