"""Measures input inside of a tf.function, such as Keras' fit().  In a graph the next batch is an op, which Python cannot
observe.  So two of our ops surround it, and report its begin and end to libhvd (hvd_part_begin in include/hvd/hvd.h).
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow as tf

from hvd.tensorflow._library import CPU, _ops


def _tell(begins: bool, after: list[Any]) -> Any:
    with tf.device(CPU), tf.control_dependencies(after):
        return _ops.hvd_fetch(begins=begins)


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def told(iterator: Any) -> Any:
        if tf.executing_eagerly() or not tf.compat.v1.get_default_graph().building_function:
            return function(iterator)
        with tf.control_dependencies([_tell(True, [])]):
            batch = function(iterator)
        there = _tell(False, tf.nest.flatten(batch, expand_composites=True))
        with tf.control_dependencies([there]):  # users of the batch wait for the report
            return tf.nest.map_structure(tf.identity, batch, expand_composites=True)

    return told


def install() -> None:
    """Works once.  Graphs keep the ops permanently.  Without hvd.init() the ops do nothing."""
    try:
        from tensorflow.python.data.ops.iterator_ops import OwnedIterator

        for name in ("_next_internal", "get_next_as_optional"):
            setattr(OwnedIterator, name, _told(getattr(OwnedIterator, name)))
    except Exception:  # another version of TensorFlow: its input is not reported
        pass
