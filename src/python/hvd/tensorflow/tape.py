"""DistributedGradientTape: the user's tape, whose gradients are reduced over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from hvd._native import Average
from hvd._runtime.local_layers import local_variables
from hvd.process_sets import ProcessSet, global_process_set
from hvd.tensorflow._gradient_reduction import Settings, checked_groups, key, reduce_gradients
from hvd.tensorflow._library import unconverted
from hvd.tensorflow.compression import Compression, Compressor

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]

if TYPE_CHECKING:
    _Base = tf.GradientTape
else:
    _Base = object  # the user's class follows it in the derived class


class _DistributedTape(_Base):  # type: ignore[misc, valid-type]
    _hvd_settings: Settings
    _hvd_local: set[Any]

    def register_local_source(self, source: Any) -> None:
        """Keeps the gradient of a variable on this rank."""
        self._hvd_local.add(key(source))

    @unconverted
    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The user's tape's gradient(), reduced over all ranks."""
        kwargs.pop("use_generic_names", None)  # Horovod's: ours never depend on variables' names
        grads = super().gradient(target, sources, output_gradients, *args, **kwargs)
        flat = tf.nest.flatten(sources)
        is_flat = isinstance(grads, (list, tuple)) and not any(isinstance(grad, (list, tuple, dict)) for grad in grads)
        given = grads if is_flat and len(grads) == len(flat) else _flatten(grads)
        reduced = reduce_gradients(given, flat, self._hvd_settings, frozenset(self._hvd_local))
        if is_flat and isinstance(sources, (list, tuple)) and len(sources) == len(reduced):
            return type(grads)(reduced) if isinstance(grads, (list, tuple)) else reduced
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Sequence[Any], output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """gradient() as two lists of pairs of source and gradient: those of register_local_source's sources, and the others."""
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients)))
        local = [pair for pair in pairs if key(pair[0]) in self._hvd_local]
        return local, [pair for pair in pairs if key(pair[0]) not in self._hvd_local]


def _flatten(grads: Any) -> list[Any]:
    # IndexedSlices count as one gradient: without expand_composites, nest does not take them apart.
    return tf.nest.flatten(grads)  # type: ignore[no-any-return]


def _distributed(tape: tf.GradientTape, settings: Settings, local: Sequence[Any]) -> Any:
    base = type(tape)
    made: Any = object.__new__(type(base.__name__, (_DistributedTape, base), {"__module__": __name__, "__doc__": base.__doc__}))
    made.__dict__ = tape.__dict__  # shares all records of the user's object, also later ones
    made._hvd_settings = settings
    made._hvd_local = set()
    for source in local:
        made.register_local_source(source)
    return made


@unconverted
def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape of the same class with a gradient() that reduces over all ranks, eagerly and in tf.function.

    compression: Compression.none, .fp16 or .bf16.
    sparse_as_dense: reduce tf.IndexedSlices as dense tensors; else their rows are gathered.
    gradient_predivide_factor: divides by it before the sum and by size / it afterwards; Average only.
    groups: a number of groups, or lists of variables, whose gradients run together (num_groups: its older name).
    scale_local_gradients: gradients of register_local_source's variables are divided by the number of ranks.
    device_dense and device_sparse are accepted as in Horovod.
    """
    chosen = checked_groups(num_groups, groups)
    call = (op, gradient_predivide_factor, chosen, process_set, scale_local_gradients)
    settings = Settings(compression, sparse_as_dense, *call)
    return _distributed(gradtape, settings, ())


@unconverted
def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A DistributedGradientTape that keeps the gradients of local_layers (a layer or a list) on this rank."""
    local = local_variables(local_layers)
    chosen = checked_groups(num_groups, groups)
    call = (op, gradient_predivide_factor, chosen, process_set, scale_local_gradients)
    settings = Settings(compression, sparse_as_dense, *call)
    return _distributed(gradtape, settings, local)
