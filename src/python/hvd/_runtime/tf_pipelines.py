"""Measures how long tf.data's pipelines take to make the data of a step, for the report on steps.  See hvd_batches_made in
include/hvd/hvd.h.

tf.data counts the time of each of its stages for its own tuning.  The iterator's model shows these counts.  Without them, a
rank with a slow pipeline looks like the rank that is by chance the last of many slow ones.
"""

from __future__ import annotations

import sys
import time
import weakref
from typing import Any, Callable

_READ_AGAIN_NS = 2_000_000_000  # a model takes about 0.4 ms to read
_SOURCES_BEFORE_CYCLE = 1  # the first input of an interleave gives the data sets, the others are these data sets


def batch_ns(model: Any) -> float:
    """Nanoseconds in which a pipeline makes one element, if its consumer is never late.

    model: tensorflow.data.model.ModelProto.  Stages with threads of their own work at the same time, so the slowest counts.
    """
    root = model.nodes.get(model.output)
    if root is None or root.num_elements == 0:
        return 0.0
    slowest = 0.0

    def own(node: Any, needed: float) -> float:
        return float(needed * node.processing_time / node.num_elements) if node.num_elements else 0.0

    def in_line(key: int, needed: float) -> float:
        """The stage's time within the thread that asks it."""
        nonlocal slowest
        if key not in model.nodes:
            return 0.0
        node = model.nodes[key]
        parameters = {parameter.name: parameter.value for parameter in node.parameters}
        threads = max(1.0, parameters.get("parallelism", 1.0))
        has_cycle = "cycle_length" in parameters
        made = node.num_elements + node.buffered_elements
        inputs = []
        for at, one in enumerate(node.inputs):
            ratio = node.ratio
            if ratio <= 0 or has_cycle:  # no fixed number: the counts tell
                ratio = model.nodes[one].num_elements / made if made and one in model.nodes else 0.0
            inputs.append((at, in_line(one, needed * ratio)))
        if not {"parallelism", "buffer_size"} & parameters.keys() or _is_shuffle(node):
            return own(node, needed) + sum(time for _, time in inputs)
        if has_cycle:
            beside = sum(time for at, time in inputs if at >= _SOURCES_BEFORE_CYCLE) / threads
        else:  # the time of a prefetch itself is its wait for room
            beside = max(own(node, needed) / threads if "parallelism" in parameters else 0.0, sum(time for _, time in inputs))
        slowest = max(slowest, beside)
        return 0.0

    return max(in_line(model.output, 1.0), slowest)


def _is_shuffle(node: Any) -> bool:
    return str(node.name).startswith("Shuffle")


class Pipelines:
    """The living iterators of a rank."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        """tell: gets the nanoseconds to make the batches of one step, or of a part of a step."""
        self._tell = tell
        self._iterators: list[weakref.ref[Any]] = []
        self._costs: weakref.WeakKeyDictionary[Any, tuple[int, int, float]] = weakref.WeakKeyDictionary()
        self._before: dict[int, int] | None = None  # elements taken of each iterator, before the step that is measured
        self._told_eagerly = False
        self._steps = self._read_ns = 0
        self._step_ns = 0.0

    def made(self, iterator: Any) -> None:
        """A program has made an iterator over a data set."""
        self._iterators = [ref for ref in self._iterators if ref() is not None]
        self._iterators.append(weakref.ref(iterator))

    def fetched(self, iterator: Any) -> None:
        """A Python loop has taken an element."""
        if not _runs_eagerly():
            return
        count, read_ns, cost = self._costs.get(iterator, (0, 0, 0.0))
        count += 1
        if _is_due(count, read_ns):
            model = _model_of(iterator)
            read_ns, cost = time.monotonic_ns(), batch_ns(model) if model else 0.0
        self._costs[iterator] = count, read_ns, cost
        self._told_eagerly = True
        self._tell(int(cost))

    def step_begins(self) -> None:
        """A step of Keras' fit() begins."""
        self._told_eagerly = False
        self._steps += 1
        if _is_due(self._steps, self._read_ns):
            self._before = {id(one): _taken(model) for one, model in self._models()}

    def step_ends(self) -> None:
        """The step of fit() has ended.  In a compiled function, the iterators tell how many elements the step has taken."""
        before, self._before = self._before, None
        if self._told_eagerly:
            return
        if before is not None:
            self._read_ns = time.monotonic_ns()
            self._step_ns = sum(batch_ns(model) * (_taken(model) - before.get(id(one), 0)) for one, model in self._models())
        self._tell(int(self._step_ns))

    def _models(self) -> list[tuple[Any, Any]]:
        alive = [iterator for ref in self._iterators if (iterator := ref()) is not None]
        return [(iterator, model) for iterator in alive if (model := _model_of(iterator)) is not None]


def _is_due(count: int, read_ns: int) -> bool:
    return count & (count - 1) == 0 or time.monotonic_ns() - read_ns > _READ_AGAIN_NS


def _taken(model: Any) -> int:
    root = model.nodes.get(model.output)
    return int(root.num_elements) if root is not None else 0


def _runs_eagerly() -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and bool(tensorflow.executing_eagerly())


def _model_of(iterator: Any) -> Any:
    """The iterator's ModelProto; None: this TensorFlow, or this iterator, has none."""
    try:
        from tensorflow.python.data.experimental.ops.iterator_model_ops import get_model_proto

        return get_model_proto(iterator)
    except Exception:
        return None
