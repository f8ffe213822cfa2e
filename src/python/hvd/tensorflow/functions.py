"""Sends variables and Python objects between ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hvd._runtime import objects as _objects
from hvd.process_sets import ProcessSet, global_process_set
from hvd.tensorflow._library import unconverted
from hvd.tensorflow.ops import broadcast_

__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]


@unconverted
def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Overwrites variables with root_rank's, all in one operation.

    Eagerly: complete on return.  In a TF1-style graph: returns the operation to run, once variables have been initialised.
    The same list of shapes and dtypes on all ranks.  inplace is accepted as in Horovod.
    """
    chosen = list(variables)
    if not chosen:
        return tf.group() if not tf.executing_eagerly() else None
    if tf.executing_eagerly():
        broadcast_(chosen, root_rank, f"variables.{len(chosen)}", process_set)
        return None
    return tf.group(*broadcast_(chosen, root_rank, None, process_set))


@unconverted
def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that overwrites all global variables of a TF1-style graph with root_rank's.

    Errors: RuntimeError in eager execution, which has no list of variables: see broadcast_variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "broadcast_global_variables needs a graph: write hvd.broadcast_variables(model.variables, root_rank=0), "
            "or hvd.broadcast_variables in a training step's first call"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Overwrites all global variables with root_rank's, once a MonitoredTrainingSession has initialised or restored them.

    device is accepted as in Horovod.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the operation to the graph, which is still open now."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the operation."""
        session.run(self.bcast_op)


@unconverted
def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """root_rank's object, on every rank.  session is accepted as in Horovod.  See hvd._runtime.objects.broadcast_object."""
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """broadcast_object as a function of the object only."""
    return lambda obj: _objects.broadcast_object(obj, root_rank, name, process_set)


@unconverted
def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in rank order.  session is accepted as in Horovod."""
    return _objects.allgather_object(obj, name, process_set)
