"""DistributedOptimizer for TF1-style optimizers, and the way to the Keras one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvd.process_sets import ProcessSet, global_process_set
from hvd.tensorflow._gradients import Aggregation, Settings, checked_groups, key, reduce_gradients
from hvd.tensorflow._library import unconverted
from hvd.tensorflow.compression import Compression, Compressor
from hvd.tensorflow.ops import Average

__all__ = ["DistributedOptimizer"]


class _GraphOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer around the user's, whose gradients are reduced on their way."""

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, settings: Settings, aggregation: Aggregation
    ) -> None:
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._hvd_settings = settings
        self._hvd_aggregation = aggregation
        self._hvd_local: set[Any] = set()

    def register_local_var(self, var: Any) -> None:
        """A variable whose gradient stays this rank's."""
        self._hvd_local.add(key(var))

    def _reduced(self, grads: Any, variables: Any) -> list[Any]:
        return reduce_gradients(grads, variables, self._hvd_settings, frozenset(self._hvd_local))

    @unconverted
    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's, reduced over all ranks; with several backward passes, apply_gradients reduces."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if self._hvd_aggregation.passes > 1 or not pairs:
            return pairs
        grads, variables = zip(*pairs)
        return list(zip(self._reduced(grads, variables), variables))

    @unconverted
    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """The user's optimizer's; every backward_passes_per_step calls when that is more than 1."""
        if self._hvd_aggregation.passes == 1:
            return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        grads, variables = zip(*grads_and_vars)

        def apply(sums: list[Any]) -> Any:
            reduced = list(zip(self._reduced(sums, variables), variables))
            return self._optimizer.apply_gradients(reduced, global_step=global_step, name=name)

        return self._hvd_aggregation.step(grads, apply)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """The user's optimizer's."""
        return self._optimizer.variables(*args, **kwargs)


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
    backward_passes_per_step: how many passes are added up before a step; average_aggregated_gradients: and divided by that.
    The other arguments are DistributedGradientTape's.
    """
    chosen = checked_groups(num_groups, groups)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        factor = float(gradient_predivide_factor)
        settings = Settings(compression, sparse_as_dense, op, factor, chosen, process_set, scale_local_gradients)
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
