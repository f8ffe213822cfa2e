"""Callbacks for Keras' fit(): equal initial weights, metrics of all ranks, learning rates."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hvd import _keras_optimizers
from hvd._keras_package import keras
from hvd._runtime import world as _world
from hvd.keras import _backend
from hvd.keras._metrics import averaged

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(_backend.Callback):
    """Overwrites the model's and the optimizer's variables with root_rank's. The callback does so before the first batch if the
    variables exist then (as in Keras 3), else after the first batch.  With hvdrun --agreement, compares them after each batch.

    local_variables: variables to keep unchanged.  device is accepted as in Horovod.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local = {id(variable) for variable in local_variables or ()}

    def register_local_var(self, var: Any) -> None:
        """Keeps a variable unchanged."""
        self._local.add(id(var))

    def _variables(self) -> list[Any]:
        of_optimizer = _keras_optimizers.variables_of(self.model.optimizer)
        seen: set[int] = set(self._local)
        chosen = []
        for variable in [*self.model.weights, *of_optimizer]:
            if id(variable) not in seen:
                seen.add(id(variable))
                chosen.append(variable)
        return chosen

    def _broadcast(self) -> None:
        if not self.broadcast_done:
            _backend.broadcast_variables(self._variables(), self.root_rank)
            self.broadcast_done = True

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts here if all variables exist, or can be built."""
        optimizer = self.model.optimizer
        if not self.model.built:
            return
        if not _backend.in_graph():  # in a graph fit() has already made the training function
            if not _keras_optimizers.build(optimizer, self.model.trainable_variables):
                return
        self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts here otherwise."""
        self._broadcast()
        _backend.compare_after_batch(self, self._local)

    def on_train_end(self, logs: Any = None) -> None:
        """Reports the last comparison."""
        _backend.compare_after_training(self)


class MetricAverageCallback(_backend.Callback):
    """Averages an epoch's metrics over all ranks.  Put it before callbacks that read them.  device: as in Horovod.

    Errors: HorovodInternalError on every rank if a rank lacks a metric of the others.  The error names the rank and the metric.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Replaces the values in logs."""
        logs = {} if logs is None else logs
        logs.update(averaged({name: value for name, value in logs.items() if _is_number(value)}))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


class LearningRateScheduleCallback(_backend.Callback):
    """Sets the learning rate to initial_lr * multiplier, from start_epoch up to end_epoch (exclusive; None: no end).

    multiplier: a number, or a function of the epoch.  With staircase=False, the epoch has a fraction; steps_per_epoch is then
    required if fit() does not know it.
    momentum_correction: scales momentum while the rate changes (arXiv:1706.02677), if the optimizer reads it in each step.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is needed: the learning rate before the multiplier")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self._restore: float | None = None
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            constant = float(multiplier)
            self.multiplier = lambda epoch: constant
            self.staircase = True  # no change within an epoch

    def _rate(self) -> float:
        return float(_backend.to_numpy(self.model.optimizer.learning_rate))

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        momentum = getattr(optimizer, "momentum", None)
        eager = _backend.NAME == "torch" or getattr(self.model, "run_eagerly", False)
        if self.momentum_correction and eager and isinstance(momentum, float) and momentum > 0 and old > 0:
            self._restore = momentum
            optimizer.momentum = momentum * new / old

    def on_train_begin(self, logs: Any = None) -> None:
        """Determines steps_per_epoch."""
        if not self.staircase and not self.steps_per_epoch:
            known = self.params or {}
            self.steps_per_epoch = known.get("steps")
            if not self.steps_per_epoch and known.get("samples") and known.get("batch_size"):  # Keras 2 in a graph
                self.steps_per_epoch = -(-known["samples"] // known["batch_size"])
            if not self.steps_per_epoch:
                raise ValueError("steps_per_epoch is needed: fit() does not know how many steps an epoch has")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate."""
        if self.current_epoch < self.start_epoch or (self.end_epoch is not None and self.current_epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust(self.current_epoch + batch / float(self.steps_per_epoch or 1))
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Restores the momentum."""
        if self._restore is not None:
            self.model.optimizer.momentum, self._restore = self._restore, None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reports the rate."""
        if logs is not None:
            logs["lr"] = self._rate()


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size to initial_lr over the first epochs (arXiv:1706.02677).

    initial_lr: the rate for all ranks together.  verbose: rank 0 prints one line at the end.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            size = _world.size()
            # One step further, so that the last step of the warm-up has the full rate.
            done = (epoch + 1.0 / float(self.steps_per_epoch or 1)) / warmup_epochs
            return (1.0 + done * (size - 1)) / size

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reports the rate, and the end of the warm-up."""
        super().on_epoch_end(epoch, logs)
        if self.verbose > 0 and epoch == (self.end_epoch or 0) - 1 and _world.rank() == 0:
            print(f"\nEpoch {epoch + 1}: warm-up is over, the learning rate is {self._rate():g}", flush=True)


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Keeps the best model so far.  The caller of fit() sets filepath first."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Any = None,
        save_weights_only: bool = False,
    ) -> None:
        super().__init__(
            os.fspath(filepath or ("best.weights.h5" if save_weights_only else "best.keras")),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = filepath and os.fspath(filepath)

    def _set_monitor_op(self) -> None:
        """Keras 3 refuses mode="auto" for custom metrics; Keras 2 took the least value as the best."""
        try:
            super()._set_monitor_op()
        except ValueError:
            self.monitor_op = keras.ops.less
