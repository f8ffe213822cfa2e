"""Reduction of a list of gradients, for tapes and optimizers.

Dense gradients travel in batches of BATCH_BYTES, with one TensorFlow op each.  The order of gradients is that of the backward
pass: the last layer's gradients come first.  So there are few ops, and the first batches travel during backward.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from hvd._elastic import shares as _shares
from hvd._native import Adasum, Average, Sum
from hvd._runtime import environment as _environment
from hvd._runtime import world as _world
from hvd._runtime.arguments import checked_predivide
from hvd.process_sets import ProcessSet, global_process_set, number_of
from hvd.tensorflow import _library
from hvd.tensorflow.compression import Compression, Compressor
from hvd.tensorflow.ops import allreduce, grouped_allreduce, many_allreduce, size_op

BATCH_BYTES = _environment.integer("HVD_TENSORFLOW_BATCH_BYTES")


@dataclass
class Settings:
    """The settings of a reduction, checked at construction."""

    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    groups: Any = None  # a number of groups, or lists of variables
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self) -> None:
        checked_predivide(self.gradient_predivide_factor, self.op)
        number_of(self.process_set)
        if self.op == Adasum and self.groups:
            raise ValueError("groups work with op=Average and op=Sum")

    @property
    def factors(self) -> tuple[float, float]:
        """Pre- and postscale factors: the average divides before and after the sum."""
        return 1.0 / self.gradient_predivide_factor, float(self.gradient_predivide_factor)


def checked_groups(num_groups: int, groups: Any) -> Any:
    """groups, or its older name num_groups; None for none.  ValueError for other values."""
    chosen = num_groups if groups is None and num_groups else groups
    if chosen is None or (isinstance(chosen, int) and chosen == 0):
        return None
    if isinstance(chosen, int) and chosen > 0:
        return chosen
    if isinstance(chosen, (list, tuple)) and all(isinstance(group, (list, tuple)) for group in chosen):
        return [list(group) for group in chosen]
    raise ValueError("groups must be a number of groups, or a list of lists of variables")


def key(variable: Any) -> Any:
    """A key that distinguishes variables, in graphs too."""
    return variable.ref() if hasattr(variable, "ref") else id(variable)


def _bytes(tensor: tf.Tensor) -> int:
    return int(tensor.shape.num_elements() or 1) * int(tensor.dtype.size)


def batches(tensors: Sequence[tf.Tensor]) -> list[list[int]]:
    """The tensors of each op: positions, from the last to the first.  The same on all ranks, because only shapes decide."""
    made: list[list[int]] = []
    room = 0
    for i in reversed(range(len(tensors))):
        size = _bytes(tensors[i])
        if not made or size > room:
            made.append([])
            room = BATCH_BYTES
        made[-1].append(i)
        room -= size
    return made


def _user_groups(groups: Any, variables: Sequence[Any], positions: Sequence[int]) -> list[list[int]]:
    """Positions by the caller's groups; tensors without a group come last, each alone."""
    if isinstance(groups, int):
        count = min(groups, len(positions)) or 1
        ends = [len(positions) * i // count for i in range(count + 1)]
        return [list(positions[start:end]) for start, end in zip(ends, ends[1:])]
    where = {key(variables[i]): i for i in positions}
    found = [[where.pop(key(v)) for v in group if key(v) in where] for group in groups]
    return [group for group in found if group] + [[i] for i in sorted(where.values())]


def _without(grads: Sequence[Any]) -> str:
    """Returns the suffix of operation names if gradients are None: ".without.1.2".  Ranks with different gradients thus use
    different names, and wait.  Without the suffix, they would add gradients of different variables.
    """
    lacking = ".".join(str(i) for i, grad in enumerate(grads) if grad is None)
    return f".without.{lacking if len(lacking) < 40 else f'{zlib.crc32(lacking.encode()):08x}'}" if lacking else ""


def _graph_name(without: str) -> str | None:
    """In a graph, the name of the next allreduce; None: the graph's own."""
    return _library.operation_name(tf.compat.v1.get_default_graph(), "allreduce", None) + without if without else None


def _name_of(tensors: Sequence[tf.Tensor], prefix: str, without: str) -> str | None:
    """In eager execution, a name that is the same in every step; in a graph, the graph's own suffices."""
    if not tf.executing_eagerly():
        return _graph_name(without)
    shapes = ";".join(f"{t.dtype.name}{t.shape}" for t in tensors)
    return f"{prefix}.{zlib.crc32(shapes.encode()):08x}{without}"


def _reduce_dense(
    grads: Sequence[tf.Tensor], variables: Sequence[Any], settings: Settings, prefix: str, without: str
) -> list[tf.Tensor]:
    small, contexts = zip(*(settings.compression.compress(grad) for grad in grads))
    pre, post = settings.factors
    reduced: list[Any] = [None] * len(grads)
    grouped = settings.groups is not None
    plan = _user_groups(settings.groups, variables, range(len(grads))) if grouped else batches(small)
    before: list[tf.Operation] = []
    for number, positions in enumerate(plan):
        tensors = [small[i] for i in positions]
        name = _name_of(tensors, f"{prefix}.{number}", without)
        with tf.control_dependencies(before):
            if grouped:
                outs = grouped_allreduce(
                    tensors,
                    op=settings.op,
                    prescale_factor=pre,
                    postscale_factor=post,
                    name=name,
                    process_set=settings.process_set,
                )
            else:
                outs = many_allreduce(tensors, name, settings.op, pre, post, settings.process_set)
        if not _library.ASYNCHRONOUS and not tf.executing_eagerly():
            before = [outs[0].op]  # each takes a thread until it has ended, so all ranks must begin with the same one
        for i, out in zip(positions, outs):
            reduced[i] = out
    return [settings.compression.decompress(out, ctx) for out, ctx in zip(reduced, contexts)]


@_library.unconverted
def reduce_gradients(
    grads: Sequence[Any],
    variables: Sequence[Any],
    settings: Settings,
    local: frozenset[Any] = frozenset(),
    prefix: str = "gradients",
) -> list[Any]:
    """The gradients reduced over all ranks, in the same order.  None stays None, and must be None on all ranks.

    variables: the variables of the gradients.  local: key() of variables with gradients that stay on this rank.  If the
    settings say so, these gradients are divided by the number of ranks, as averaging divides the others.
    """
    _shares.refuse_reduction("hvd's tape or optimizer")
    results = list(grads)
    size = settings.process_set.size()
    if size is None:
        _world.rank()  # raises if init() is missing
        raise ValueError("this process set does not exist (anymore): see add_process_set")
    dense: list[int] = []
    for i, grad in enumerate(grads):
        if grad is None:
            continue
        if key(variables[i]) in local:
            if settings.scale_local_gradients:
                results[i] = divided_by_ranks(grad, settings.process_set)
        elif not isinstance(grad, tf.IndexedSlices):
            dense.append(i)
        elif settings.sparse_as_dense:
            results[i] = tf.convert_to_tensor(grad)
            dense.append(i)
    alone = size == 1 and not settings.process_set.may_change()
    if alone or not settings.process_set.included():
        return results
    without = _without([grad for i, grad in enumerate(grads) if key(variables[i]) not in local])
    if dense:
        chosen = [results[i] for i in dense]
        for i, out in zip(dense, _reduce_dense(chosen, [variables[i] for i in dense], settings, prefix, without)):
            results[i] = out
    for i, grad in enumerate(results):
        if isinstance(grad, tf.IndexedSlices) and key(variables[i]) not in local:
            if settings.op not in (Average, Sum):
                raise NotImplementedError("sparse gradients are reduced by Average and Sum; see sparse_as_dense")
            name = f"{prefix}.sparse.{i}" if tf.executing_eagerly() else _graph_name(without)
            results[i] = allreduce(grad, op=settings.op, name=name, process_set=settings.process_set)
    return results


def divided_by_ranks(grad: Any, process_set: ProcessSet) -> Any:
    """Divides by the number of ranks at execution.  In an elastic job, a function may have been traced in an earlier world."""
    traced = process_set.may_change() and not tf.executing_eagerly()
    by = size_op() if traced else process_set.size()
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(grad.values / tf.cast(by, grad.values.dtype), grad.indices, grad.dense_shape)
    return grad / tf.cast(by, grad.dtype)


class _Begun(NamedTuple):
    """The sums since the last step, for one list of variables."""

    variables: tuple[Any, ...]  # kept, since their keys may be addresses
    count: tf.Variable  # of passes
    sums: list[Any]  # tf.Variable, or None without a gradient

    def held(self) -> list[tf.Variable]:
        return [s for s in self.sums if s is not None]


def _local_variable(initial: tf.Tensor, name: str) -> tf.Variable:
    """A local variable: a TF1-style graph neither broadcasts nor saves it.  tf.compat.v1.local_variables_initializer() sets
    its first value.
    """
    if tf.executing_eagerly():
        return tf.Variable(initial, trainable=False, name=name)
    local = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
    return tf.compat.v1.Variable(initial, trainable=False, name=name, collections=local, use_resource=True)


class Aggregation:
    """Adds up the gradients of several backward passes, and reduces them once.  Eagerly, in tf.function and in graphs."""

    def __init__(self, passes: int, average: bool) -> None:
        if not isinstance(passes, int) or passes < 1:
            raise ValueError(f"backward_passes_per_step is {passes!r}: it must be at least 1")
        self.passes = passes
        self.average = average
        self._begun: dict[Any, _Begun] = {}  # a partly frozen model, or another one, has its own sums
        self._latest: _Begun | None = None

    def _for(self, grads: Sequence[Any], variables: Sequence[Any]) -> _Begun:
        which = tuple((key(variable), grad is None) for variable, grad in zip(variables, grads))
        if which not in self._begun:
            with tf.init_scope():
                count = _local_variable(tf.zeros([], tf.int64), "hvd_backward_passes")
                zeros = [None if grad is None else tf.zeros(grad.shape, grad.dtype) for grad in grads]
                sums = [None if zero is None else _local_variable(zero, "hvd_gradient") for zero in zeros]
            self._begun[which] = _Begun(tuple(variables), count, sums)
        return self._begun[which]

    @property
    def counter(self) -> tf.Tensor:
        """Passes since the last step."""
        return tf.zeros([], tf.int64) if self._latest is None else self._latest.count.read_value() % self.passes

    def variables(self) -> list[tf.Variable]:
        """All variables of this object so far."""
        return [v for begun in self._begun.values() for v in (begun.count, *begun.held())]

    def forget(self) -> None:
        """Begins again with the first pass.  Eagerly only: in a TF1-style graph the sums stay."""
        if tf.executing_eagerly():
            for variable in self.variables():
                variable.assign(tf.zeros_like(variable))

    def reduced(self, grads: Sequence[Any], variables: Sequence[Any], reduce: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Adds grads.  At every passes-th call for these variables returns reduce(sums), else the sums so far."""
        grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        begun = self._latest = self._for(grads, variables)
        added: list[Any] = [total.assign_add(grad) for total, grad in zip(begun.sums, grads) if grad is not None]
        added.append(begun.count.assign_add(1))
        with _after(added):
            due = self._due(begun)
            given = tf.cond(due, lambda: self._flush(begun, reduce), lambda: [s.read_value() for s in begun.held()])
        found = iter(given)
        return [None if grad is None else next(found) for grad in grads]

    def when_due(self, grads: Sequence[Any], apply: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """apply() if the last call of reduced() has reduced, else otherwise().  grads: computed before.

        Returns a boolean tensor: whether apply() was called.
        """
        latest = self._latest
        if latest is None:
            raise ValueError("no gradients were added up before")

        def after(value: Any, applied: bool) -> tf.Tensor:
            with _after([value] if isinstance(value, (tf.Operation, tf.Tensor)) else []):
                return tf.constant(applied)

        with _after([grad for grad in grads if grad is not None]):
            return tf.cond(self._due(latest), lambda: after(apply(), True), lambda: after(otherwise(), False))

    def zero_until_due(self, grads: Sequence[Any]) -> list[Any]:
        """grads from reduced(); zeros if these are sums so far, which differ between ranks."""
        latest = self._latest
        assert latest is not None
        with _after([grad for grad in grads if grad is not None]):
            due = self._due(latest)
            return [None if grad is None else tf.where(due, grad, tf.zeros_like(grad)) for grad in grads]

    def _due(self, begun: _Begun) -> tf.Tensor:
        return tf.equal(begun.count.read_value() % self.passes, 0)

    def _flush(self, begun: _Begun, reduce: Callable[[list[Any]], list[Any]]) -> list[tf.Tensor]:
        scale = 1.0 / self.passes if self.average else 1.0
        totals = [None if s is None else s.read_value() * tf.cast(scale, s.dtype) for s in begun.sums]
        results = [result for result in reduce(totals) if result is not None]
        with _after([*(total for total in totals if total is not None), *results]):
            cleared = [s.assign(tf.zeros_like(s)) for s in begun.held()]
        with _after(cleared):
            return [tf.identity(result) for result in results]


def _after(values: Sequence[Any]) -> Any:
    """In a graph, makes ops in this context run after values have been computed."""
    return tf.control_dependencies([] if tf.executing_eagerly() else list(values))
