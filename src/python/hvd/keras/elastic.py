"""Elastic states of Keras, on any of its backends, and the callbacks that keep them up to date during fit().

For the kinds of recovery see hvd.elastic.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from hvd import _keras_optimizers
from hvd import elastic as _elastic
from hvd._runtime import world as _world
from hvd.elastic import GlobalBatch, GlobalBatches, ObjectState, broadcast_from_rank_0, check_results
from hvd.keras import _backend

__all__ = [
    "CommitStateCallback",
    "GlobalBatch",
    "GlobalBatches",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


def _settle(model: Any) -> None:
    """On JAX, fit() updates the variables late: brings them up to date."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


class KerasState(ObjectState):
    """A built model, its optimizer, and values as attributes: KerasState(model, epoch=0, batch=0).

    optimizer: needed if the model is not compiled with it.  Its variables are made here, for the model's trainable variables.
    restore() and sync() drop the gradients that backward_passes_per_step has added up since the last step.
    Errors: ValueError for a model that has no variables yet: call model.build(input_shape) first.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not getattr(model, "built", True):
            raise ValueError("the model has no variables yet: call model.build(input_shape) first")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        self._keep()
        super().__init__(broadcast_from_rank_0, _world.rank, **kwargs)

    def _variables(self) -> list[Any]:
        optimizer = self.optimizer
        if optimizer is None:
            return list(self.model.weights)
        if not _backend.in_graph():  # in a graph fit() makes them, with the training function
            _keras_optimizers.build(optimizer, self.model.trainable_variables)
        return [*self.model.weights, *_keras_optimizers.variables_of(optimizer)]

    def _copied(self) -> Any:
        _settle(self.model)
        return _backend.to_numpy_all(self._variables())

    def _keep(self) -> None:
        self._values = self._copied()

    def save(self) -> None:
        """See State.  If there is not enough memory for all of it, the previous copy stays."""
        values = self._copied()
        super().save()
        self._values = values

    def restore(self) -> None:
        """See State."""
        _backend.assign(self._variables(), self._values)
        _keras_optimizers.forget_passes(self.optimizer)
        super().restore()

    def saved_copy(self) -> dict[str, Any]:
        """See State."""
        return {**super().saved_copy(), "variables": self._values}

    def use_saved_copy(self, copy: Any) -> None:
        """See State."""
        super().use_saved_copy(copy)
        self._values = copy["variables"]

    def sync(self) -> None:
        """See State."""
        _backend.broadcast_variables(self._variables(), 0)
        _keras_optimizers.forget_passes(self.optimizer)
        super().sync()
        values = self._copied()
        check_results()  # a failure up to here leaves the copy unchanged
        self._values = values


class CommitStateCallback(_backend.Callback):
    """Commits the state every batches_per_commit batches, and at the end of an epoch.  Put it last.

    With hvdrun --agreement, compares the model's variables after each batch, before the commit.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from here, on all ranks alike."""
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commits after every batches_per_commit batches."""
        _backend.compare_after_batch(self, set())
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commits."""
        self.state.commit()


class UpdateBatchStateCallback(_backend.Callback):
    """Keeps state.batch at fit()'s current batch; 0 at the end of an epoch.

    An interrupted epoch has only its remaining steps.  For this, fit() must know the number of steps of an epoch: give it
    steps_per_epoch, or data with a length.  As in Horovod these are the data's first batches, not its last.  As in Horovod
    state.batch is the index of the last finished step, so the epoch repeats that step.  If CommitStateCallback is before this
    callback in the list, the epoch repeats two steps.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: int | None = None
        self._begin, self._left = 0, 0  # of a resumed epoch: its first step, and the number of remaining steps
        self._enough = object()  # as value of model.stop_training it ends only this epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Forgets the length of an epoch."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Tells the progress bar the number of remaining steps of a resumed epoch."""
        self._begin, self._left = self.state.batch, 0
        steps = (self.params or {}).get("steps")
        if steps:
            self.steps_per_epoch = self.steps_per_epoch or steps
            self._left = max(1, self.steps_per_epoch - self._begin)
            self.params["steps"] = self._left

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the batch; ends a resumed epoch."""
        self.state.batch = self._begin + batch
        if self._begin and self._left and batch + 1 >= self._left and not self.model.stop_training:
            self.model.stop_training = self._enough

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The next epoch begins at 0."""
        self.state.batch = self._begin = 0
        if self._left and self.model.stop_training is self._enough:
            self.model.stop_training = False


class UpdateEpochStateCallback(_backend.Callback):
    """Keeps state.epoch at the number of finished epochs, over several calls of fit()."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """fit() counts from 0 again, so the finished epochs are added."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Counts the finished epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1


def run(func: Callable[..., Any] | None = None, *, keep_global_batch: bool = False) -> Any:
    """hvd.elastic.run, which also recognises our errors in the form in which the backends' compiled steps report them."""
    if func is None:
        return functools.partial(run, keep_global_batch=keep_global_batch)
    if _backend.NAME == "tensorflow":
        from hvd.tensorflow.elastic import run as in_tensorflow

        return in_tensorflow(func, keep_global_batch=keep_global_batch)

    if _backend.NAME == "jax":
        from hvd.jax.elastic import run as in_jax

        return in_jax(func, keep_global_batch=keep_global_batch)
    return _elastic.run(func, keep_global_batch=keep_global_batch)
