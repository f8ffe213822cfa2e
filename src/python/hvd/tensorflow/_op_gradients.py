"""The gradients of the operations in TensorFlow's form.  Importing this registers them.

A loss is the sum over ranks of each rank's own loss.  There are two exceptions, as in Horovod.  The gradients of
allgather and broadcast are averaged over the ranks.  The gradient of reducescatter with Sum is multiplied by their
number.

A session runs only the ops on which a result depends.  So on every rank the result must depend on all exchanges of its
gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvd._native import Adasum, Average, Product, Sum
from hvd.process_sets import ProcessSet
from hvd.tensorflow import _library
from hvd.tensorflow.ops import alltoall, call_reduction, many_allgather, many_allreduce


def _call_of(op: Any) -> tuple[str | None, int, float, float, ProcessSet]:
    """The name for the gradient's operation, and the arguments of the operation."""
    before, after = (_library.factor(op.get_attr(what)) for what in ("prescale_bits", "postscale_bits"))
    return _gradient_name(op), op.get_attr("reduce"), before, after, _library.set_of(op.get_attr("process_set"))


def _gradient_name(op: Any) -> str | None:
    name = op.get_attr("tensor_name")
    name = name.decode() if isinstance(name, bytes) else name
    return f"{name}.gradient" if name else None


def _dense(op: Any, grads: Sequence[Any]) -> list[tf.Tensor]:
    return [tf.zeros_like(out) if grad is None else tf.convert_to_tensor(grad) for out, grad in zip(op.outputs, grads)]


def _part(name: str | None, part: str) -> str | None:
    return name and f"{name}.{part}"


def _extremum_gradients(inputs: Sequence[Any], totals: Sequence[Any], name: str | None, op: int, of: ProcessSet) -> list[Any]:
    """Min, Max: the gradient goes to the ranks with the extremum, in equal parts."""
    extrema = many_allreduce(inputs, _part(name, "extremum"), op, process_set=of)
    holds = [tf.cast(tf.equal(x, e), total.dtype) for x, e, total in zip(inputs, extrema, totals)]
    holders = many_allreduce(holds, _part(name, "holders"), Sum, process_set=of)
    return [total * mine / everybody for total, mine, everybody in zip(totals, holds, holders)]


def _product_gradients(inputs: Sequence[Any], totals: Sequence[Any], name: str | None, of: ProcessSet) -> list[Any]:
    """Product: the gradient times the product of the other ranks' elements, also right for zeros."""
    zero = [tf.cast(tf.equal(x, tf.zeros_like(x)), tf.int32) for x in inputs]
    zeros = many_allreduce(zero, _part(name, "zeros"), Sum, process_set=of)
    ones = [tf.where(tf.equal(z, 1), tf.ones_like(x), x) for x, z in zip(inputs, zero)]
    products = many_allreduce(ones, _part(name, "others"), Product, process_set=of)
    return [
        total * tf.where(all_zeros > mine, tf.zeros_like(x), product / x)
        for x, total, mine, all_zeros, product in zip(ones, totals, zero, zeros, products)
    ]


@_library.gradient_of("HvdAllreduce")
def _allreduce_gradient(op: Any, *grads: Any) -> list[Any]:
    name, reduce, before, after, of = _call_of(op)
    dense, group = _dense(op, grads), op.get_attr("group")
    if reduce in (Average, Sum, Adasum):
        return call_reduction("allreduce", dense, name, group, reduce, before, after, of)
    totals = many_allreduce(dense, name, Sum, process_set=of)
    if reduce == Product:
        scale = before ** (of.size() or 1) * after
        gradients = _product_gradients(op.inputs, totals, name, of)
    else:
        scale = before * after
        gradients = _extremum_gradients(op.inputs, totals, name, reduce, of)
    return gradients if scale == 1 else [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients]


@_library.gradient_of("HvdAllgather")
def _allgather_gradient(op: Any, *grads: Any) -> list[Any]:
    """This rank's rows of the averaged gradients."""
    name, of = _gradient_name(op), _library.set_of(op.get_attr("process_set"))
    averaged = call_reduction("allreduce", _dense(op, grads), name, op.get_attr("group"), Average, 1.0, 1.0, of)
    rows = tf.stack([tf.concat([tf.shape(x), [1]], 0)[0] for x in op.inputs])  # a scalar is one row
    of_all = many_allgather([rows[tf.newaxis]], _part(name, "rows"), False, of)[0]  # [ranks, tensors]
    first = tf.reduce_sum(of_all[: of.rank() or 0], 0)
    mine = [grad[first[i] : first[i] + rows[i]] for i, grad in enumerate(averaged)]
    return [tf.reshape(grad, tf.shape(x)) for grad, x in zip(mine, op.inputs)]


@_library.gradient_of("HvdBroadcast")
def _broadcast_gradient(op: Any, *grads: Any) -> list[Any]:
    """The averaged gradients on root, zeros on the others."""
    name, of = _gradient_name(op), _library.set_of(op.get_attr("process_set"))
    averaged = many_allreduce(_dense(op, grads), name, Average, process_set=of)
    if of.rank() == op.get_attr("root"):
        return averaged
    with tf.control_dependencies(averaged):  # root waits for these exchanges, although their results are unused here
        return [tf.zeros_like(grad) for grad in averaged]


@_library.gradient_of("HvdAlltoall")
def _alltoall_gradient(op: Any, grad: Any, _: Any) -> list[Any]:
    """The rows return to their senders."""
    of = _library.set_of(op.get_attr("process_set"))
    back, _counts = alltoall(grad, op.outputs[1], _gradient_name(op), process_set=of)
    return [tf.reshape(back, tf.shape(op.inputs[0])), None]


@_library.gradient_of("HvdReducescatter")
def _reducescatter_gradient(op: Any, *grads: Any) -> list[Any]:
    name, reduce, before, after, of = _call_of(op)
    if reduce not in (Average, Sum):
        raise NotImplementedError("reducescatter has gradients for Sum and Average")
    scale = before * after * ((of.size() or 1) if reduce == Sum else 1)
    dense = [grad * tf.cast(scale, grad.dtype) for grad in _dense(op, grads)]
    return many_allgather(dense, name, op.get_attr("group"), of)


for _name in ("HvdWorld", "HvdKeep", "HvdBarrier", "HvdBarrierInOrder"):
    tf.no_gradient(_name)
