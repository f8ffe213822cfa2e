"""Elastic states of TensorFlow.  For the kinds of recovery see hvd.elastic."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from hvd import _keras_optimizers
from hvd import elastic as _elastic
from hvd._runtime import world as _world
from hvd.elastic import GlobalBatch, GlobalBatches, ObjectState, broadcast_from_rank_0, check_results
from hvd.exceptions import HorovodInternalError
from hvd.tensorflow import _library
from hvd.tensorflow.functions import broadcast_variables

__all__ = ["GlobalBatch", "GlobalBatches", "TensorFlowKerasState", "TensorFlowState", "run"]


class _Variables:
    """A list of variables, with a copy of their values.  In a graph they need a session."""

    def __init__(self, variables: Sequence[Any], session: Any = None) -> None:
        self.variables = list(variables)
        self.session = session
        self._broadcast: Any = None
        self._loads: Any = None  # operations of a graph: made once, since they stay in it
        if not tf.executing_eagerly():
            if session is None:
                raise ValueError("a session is needed where TensorFlow does not execute eagerly: session=...")
            with session.graph.as_default():
                self._broadcast = broadcast_variables(self.variables, root_rank=0)
                self._feeds = [tf.compat.v1.placeholder(v.dtype.base_dtype, v.shape) for v in self.variables]
                self._loads = [v.assign(feed).op for v, feed in zip(self.variables, self._feeds)]
        self.save()

    def save(self) -> None:
        self.values = self.copied()

    def copied(self) -> Any:
        if self.session is not None and self._loads is not None:
            return self.session.run(self.variables)
        return [np.array(v.numpy()) for v in self.variables]

    def restore(self) -> None:
        if self._loads is not None:
            self.session.run(self._loads, dict(zip(self._feeds, self.values)))
        else:
            for variable, value in zip(self.variables, self.values):
                variable.assign(value)

    def sync(self) -> None:
        if self._loads is not None:
            self.session.run(self._broadcast)
        else:
            broadcast_variables(self.variables, root_rank=0)


class _VariablesState(ObjectState):
    """An ObjectState with variables."""

    def __init__(self, kept: _Variables, **kwargs: Any) -> None:
        self._kept = kept
        super().__init__(broadcast_from_rank_0, _world.rank, **kwargs)

    def save(self) -> None:
        """See State.  If there is not enough memory for all of it, the previous copy stays."""
        values = self._kept.copied()
        super().save()
        self._kept.values = values

    def restore(self) -> None:
        """See State."""
        self._kept.restore()
        super().restore()

    def saved_copy(self) -> dict[str, Any]:
        """See State."""
        return {**super().saved_copy(), "variables": self._kept.values}

    def use_saved_copy(self, copy: Any) -> None:
        """See State."""
        super().use_saved_copy(copy)
        self._kept.values = copy["variables"]

    def sync(self) -> None:
        """See State."""
        self._kept.sync()
        super().sync()
        values = self._kept.copied()
        check_results()  # a failure up to here leaves the copy unchanged
        self._kept.values = values


class TensorFlowState(_VariablesState):
    """A list of variables, and values as attributes: TensorFlowState(variables, batch=0).

    variables: by default all global variables of a TF1-style graph.  session: for a graph, by default the default one.
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        eager = tf.executing_eagerly()
        if variables is None:
            if eager:
                raise ValueError("TensorFlowState needs the list of variables: eagerly there is no list of all of them")
            variables = tf.compat.v1.global_variables()
        self.variables = list(variables)
        self.session = session if eager else session or tf.compat.v1.get_default_session()
        super().__init__(_Variables(self.variables, self.session), **kwargs)


class TensorFlowKerasState(_VariablesState):
    """A Keras model on TensorFlow, its optimizer, and values as attributes: TensorFlowKerasState(model, epoch=0, batch=0).

    optimizer: needed if the model is not compiled with it.  Its variables are made here, for the model's trainable variables.
    backend: for TF1-style graphs, the module with get_session(); there the optimizer must have its variables already.
    restore() and sync() drop the gradients that backward_passes_per_step has added up since the last step.
    Errors: ValueError for a model that has no variables yet: call model.build(input_shape) first.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not getattr(model, "built", True):
            raise ValueError("the model has no variables yet: call model.build(input_shape) first")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        self.backend = backend
        session = None if tf.executing_eagerly() or backend is None else backend.get_session()
        variables = list(model.variables)
        if self.optimizer:
            if tf.executing_eagerly():
                _keras_optimizers.build(self.optimizer, model.trainable_variables)
            variables += _keras_optimizers.variables_of(self.optimizer)
        super().__init__(_Variables(variables, session), **kwargs)

    def restore(self) -> None:
        """See State."""
        super().restore()
        _keras_optimizers.forget_passes(self.optimizer)

    def sync(self) -> None:
        """See State."""
        super().sync()
        _keras_optimizers.forget_passes(self.optimizer)


def told_by_tensorflow(error: Exception) -> HorovodInternalError | None:
    """Our error, if TensorFlow's error reports one; else None.

    TensorFlow's error then has the message of our last failed kernel.  Or it has the name of our error class, if a
    function raised that.
    """
    text = str(error)
    ours = _library.last_failure()
    if not (ours and ours in text) and HorovodInternalError.__name__ not in text:
        return None
    found = HorovodInternalError(text)
    found.code = "mismatch" if isinstance(error, tf.errors.FailedPreconditionError) else "peer_lost"
    return found


def run(func: Callable[..., Any] | None = None, *, keep_global_batch: bool = False) -> Any:
    """hvd.elastic.run, which also recognises our errors in TensorFlow's types, as graphs raise them."""
    if func is None:
        return functools.partial(run, keep_global_batch=keep_global_batch)
    errors = (tf.errors.FailedPreconditionError, tf.errors.AbortedError, tf.errors.UnknownError)
    translated = _elastic.translating(func, errors, told_by_tensorflow)
    return _elastic.run(translated, keep_global_batch=keep_global_batch)
