"""--agreement for parameters of NumPy, JAX, TensorFlow and MXNet: one call after each step.

    params, state = step(params, state, batch)
    hvd.agreement.compare({"params": params, "state": state})

torch's optimizers, Keras' fit() and MXNet's DistributedTrainer compare by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hvd._runtime import environment as _environment
from hvd._runtime import world as _world
from hvd.process_sets import ProcessSet, global_process_set, number_of

__all__ = ["compare"]

_comparisons: dict[tuple[int | None, str], Any] = {}
_world.when_left.append(_comparisons.clear)


def compare(
    tensors: Any, exclude: Iterable[str] = (), process_set: ProcessSet = global_process_set, name: str = "tensors"
) -> None:
    """Compares tensors between the ranks, if hvdrun has --agreement.  Call it after each step, on all ranks of the set.

    Each call reads one window of the tensors.  So every byte is compared within --agreement-steps calls.  Differences are
    reported at the next call.  A rank that lacks a call holds the others up for two seconds at most, and is reported.

    tensors: arrays, tensors or variables, in dicts, lists or any tree of JAX; other values are left out.  Equal trees on all
    ranks.  exclude: patterns such as "*.router.*" for names that may differ; the first call counts.  name: one for each tree,
    if there are several.
    Errors: ValueError before init(); TypeError inside jit and tf.function.  DivergedError with --agreement stop, for a
    difference.  DivergedError with repair, if the difference happens again, or the tensors cannot be overwritten (JAX's).
    """
    if _environment.text("HVD_AGREEMENT") == "off":
        return
    _world.need()
    if _world.size() == 1:
        return
    from hvd._agreement.tree import leaves_of

    which = number_of(process_set), name
    comparison = _comparisons.get(which)
    if comparison is None:
        from hvd._agreement.comparison import Comparison

        comparison = _comparisons[which] = Comparison(process_set, exclude, f"compare.{name}")
    comparison.step(*leaves_of(tensors))
