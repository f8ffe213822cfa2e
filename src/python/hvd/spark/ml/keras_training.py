"""A Keras estimator's ranks: each streams its rows to fit() with hvd.keras; rank 0 keeps checkpoints in the store."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any, Callable

import numpy

from hvd._keras_optimizers import build, variables_of
from hvd.spark.ml.events import EventFile
from hvd.spark.ml.keras_kinds import array, schedule_of
from hvd.spark.ml.readers import DataModuleReader, open_reader
from hvd.spark.ml.shard import Shard
from hvd.spark.ml.training import Training, begin, of_rows


def pack(model: Any) -> bytes:
    """A Keras model as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def unpack(packed: bytes, custom_objects: Any = None, package: str = "keras") -> Any:
    """The model from its bytes, not compiled.  package: "keras" or "tf_keras"."""
    keras: Any = importlib.import_module(package)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(packed)
        return keras.models.load_model(path, custom_objects=custom_objects, compile=False)


def shaped(inputs: list[Any], shapes: Any, model: Any) -> list[Any]:
    """Inputs in the requested shapes, else in those of the model's inputs.  Without either, a column of numbers becomes [rows,
    1]."""
    return _columns(inputs, shapes, getattr(model, "inputs", None), 1)


def _columns(values: list[Any], shapes: Any, specs: Any, least: int) -> list[Any]:
    """Values in the requested shapes, else in those of Keras' tensors if the numbers of values agree."""
    if shapes:
        return [value.reshape(of_rows(shape)) for value, shape in zip(values, shapes)]
    wanted = [tuple(spec.shape[1:]) for spec in specs or ()]
    return [_as(value, wanted[i] if i < len(wanted) else (), least) for i, value in enumerate(values)]


def _as(value: Any, shape: tuple[int | None, ...], least: int) -> Any:
    """Reshapes a vector column, for example as an image, if the numbers of values agree; otherwise Keras reports the
    mismatch.
    """
    if shape and None not in shape and value[:1].size == math.prod(shape):  # type: ignore[arg-type]
        return value.reshape(-1, *shape)
    return value.reshape(-1, 1) if value.ndim == least else value


def train(training: Training) -> dict[str, Any] | None:
    """One rank's training.  Rank 0 returns weights and optimizer's variables, the history and the width of each output."""
    settings = training.settings
    begin(settings)
    import hvd.keras as hvd
    from hvd._keras_package import keras

    hvd.init()
    with device_of(keras, hvd, settings["use_gpu"]):
        if settings["random_seed"] is not None:
            keras.utils.set_random_seed(int(settings["random_seed"]) + hvd.rank())
        model = unpack(training.work["model"], settings["custom_objects"], keras.__name__)
        run = _Run(training, model, keras, hvd)
        state = run.checkpoint()
        optimizer = compiled(model, training, keras, hvd)
        first = run.resume(model, state)
        if state is None:
            restore(optimizer, model, training.work["optimizer_state"])
        scale_rate(optimizer, hvd.size(), keras)
        _fit(run, model, first)
        if hvd.rank() != 0:
            return None
        run.load_best(model)
        found = {"weights": model.get_weights(), "history": run.history, "widths": run.widths()}
        return {**found, "optimizer": run.optimizer_state(model)}


def _fit(run: _Run, model: Any, first: int) -> None:
    training, hvd = run.t, run.hvd
    settings = training.settings
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        *run.callbacks(),
        *run.best_model_callbacks(),
        run.checkpoint_callback(),
    ]
    with open_reader(training, hvd) as rows:
        options = {"epochs": settings["epochs"], "initial_epoch": first, "steps_per_epoch": rows.steps, "verbose": 0}
        if isinstance(rows, DataModuleReader):
            if rows.val_steps:
                options |= {"validation_data": rows.module.val_data(), "validation_steps": rows.val_steps}
            model.fit(rows.module.train_data(), callbacks=callbacks, **options)
            return
        run.shard = rows.shard
        validation = [run.validator(lambda: run.batches(rows.validate()), rows.val_steps)] if rows.val_steps else []
        epochs = itertools.chain.from_iterable(rows.train(epoch) for epoch in itertools.count(first))
        # shuffle: shard.py shuffles
        model.fit(run.batches(epochs), shuffle=False, callbacks=[*validation, *callbacks], **options)


def compiled(model: Any, training: Training, keras: Any, hvd: Any = None) -> Any:
    """Compiles the model; returns the optimizer.  hvd: to average gradients over the ranks."""
    settings, work = training.settings, training.work
    optimizer = keras.optimizers.deserialize(work["optimizer"], custom_objects=settings["custom_objects"])
    if hvd is not None:
        passes = settings["backward_passes_per_step"]
        options = {"backward_passes_per_step": passes, "average_aggregated_gradients": passes > 1}
        if settings["gradient_compression"]:
            options["compression"] = settings["gradient_compression"]
        optimizer = hvd.DistributedOptimizer(optimizer, **options)
    with keras.utils.custom_object_scope(settings["custom_objects"] or {}):
        model.compile(optimizer=optimizer, loss=work["loss"], loss_weights=settings["loss_weights"], metrics=work["metrics"])
    return model.optimizer


def restore(optimizer: Any, model: Any, values: Any) -> None:
    """Sets the optimizer's variables to those of another optimizer of its class."""
    if values is not None:
        build(optimizer, model.trainable_variables)
        for variable, value in zip(variables_of(optimizer), values):
            variable.assign(value)


def scale_rate(optimizer: Any, factor: float, keras: Any) -> None:
    """Multiplies the learning rate, a number or a schedule."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    schedule: Any = schedule_of(optimizer, keras)
    if schedule is None:
        optimizer.learning_rate = float(array(optimizer.learning_rate)) * factor
        return

    class Scaled(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc,name-defined]
        def __call__(self, step: Any) -> Any:
            return schedule(step) * factor

        def get_config(self) -> dict[str, Any]:
            return dict(schedule.get_config())

    optimizer.learning_rate = Scaled()


def device_of(keras: Any, hvd: Any, use_gpu: bool) -> Any:
    """A context in which Keras computes on this rank's GPU if there are any, else on the CPU."""
    name = keras.backend.backend()
    if name == "tensorflow":
        tensorflow: Any = importlib.import_module("tensorflow")
        if found := tensorflow.config.list_physical_devices("GPU"):
            mine = [found[hvd.local_rank() % len(found)]] if use_gpu else []
            tensorflow.config.set_visible_devices(mine, "GPU")
            for device in mine:
                tensorflow.config.experimental.set_memory_growth(device, True)
    elif name == "torch":
        import torch

        if use_gpu and torch.cuda.is_available():
            torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    elif name == "jax":
        import jax

        found = jax.local_devices() if use_gpu else jax.local_devices(backend="cpu")
        return jax.default_device(found[hvd.local_rank() % len(found)])
    if use_gpu:
        return contextlib.nullcontext()
    return keras.device("cpu") if hasattr(keras, "device") else tensorflow.device("cpu")  # Keras 2 is TensorFlow's


class _Run:
    """Batches for fit(), the history of all runs of this name together, and the checkpoint."""

    def __init__(self, training: Training, model: Any, keras: Any, hvd: Any) -> None:
        self.t, self.model, self.keras, self.hvd = training, model, keras, hvd
        self.path = training.store.get_checkpoint_path(training.run_id)
        self.history: dict[str, list[float]] = {}
        self.folder: Any = None  # folder of the best model so far, on rank 0
        self.shard: Shard | None = None
        self.logs = training.store.get_logs_path(training.run_id)
        self.events: list[EventFile] = []  # of training and validation, on rank 0
        self.board: Any = None  # folder of the user's TensorBoard callback

    def best_model_callbacks(self) -> list[Any]:
        """The checkpoint_callback, on rank 0, with a file to write to."""
        callback = self.t.settings["checkpoint_callback"]
        if callback is None or self.hvd.rank() != 0:
            return []
        self.folder = tempfile.TemporaryDirectory()
        name = "best.weights.h5" if getattr(callback, "save_weights_only", False) else "best.keras"
        callback.filepath = os.path.join(self.folder.name, name)
        return [callback]

    def load_best(self, model: Any) -> None:
        """Loads the weights that the checkpoint_callback kept into the model."""
        if self.folder is not None:
            with self.folder:
                path = self.t.settings["checkpoint_callback"].filepath
                if os.path.exists(path):
                    model.load_weights(path)

    def callbacks(self) -> list[Any]:
        """The user's callbacks.  TensorBoard's writes on rank 0 only, to a folder that goes to the store after each epoch."""
        board = getattr(self.keras.callbacks, "TensorBoard", ())
        kept = self.t.store.saving_runs()
        found: list[Any] = []
        boards: list[Any] = []
        for callback in self.t.settings["callbacks"] or ():
            if isinstance(
                callback, self.hvd.callbacks.LearningRateScheduleCallback
            ):  # its learning rate is that of all ranks together
                callback.initial_lr = float(array(self.model.optimizer.learning_rate))
            (boards if isinstance(callback, board) else found).append(callback)
        if self.hvd.rank() != 0:
            return found
        if not boards or not kept:
            self.events = [EventFile(self.t.store, f"{self.logs}/{stage}") for stage in ("train", "validation")] if kept else []
            return found + boards
        self.board = tempfile.TemporaryDirectory()
        for callback in boards:
            callback.log_dir = self.board.name
        return found + boards

    def copy_board(self) -> None:
        """Copies the files of the user's TensorBoard so far to the store."""
        for folder, _, names in os.walk(self.board.name) if self.board else ():
            inner = os.path.relpath(folder, self.board.name)
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    self.t.store.write(f"{self.logs}/{os.path.normpath(f'{inner}/{name}')}", file.read())

    def inputs(self, batch: dict[str, Any]) -> Any:
        """One array, or a tuple of them."""
        return _one_or_all(shaped([batch[name] for name in self.t.features], self.t.settings["input_shapes"], self.model))

    def batches(self, given: Iterator[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
        """Batches for fit(): (inputs, labels), or with weights."""
        for batch in given:
            labels = [batch[name] for name in self.t.labels]
            labels = _columns(labels, self.t.settings["label_shapes"], getattr(self.model, "outputs", None), 0)
            weight = batch[self.t.weight].astype(numpy.float32) if self.t.weight else None
            given_weights = () if weight is None else (_one_or_all([weight] * len(labels)),)
            yield (self.inputs(batch), _one_or_all(labels), *given_weights)

    def widths(self) -> list[int]:
        """The number of values of each output; 0 if only a data_module knows it."""
        if self.shard is None:
            return [0 if None in spec.shape[1:] else math.prod(spec.shape[1:]) for spec in self.model.outputs]
        outputs = self.model.predict(self.inputs(self.shard.first), verbose=0)
        return [int(numpy.size(value)) for value in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]

    def checkpoint(self) -> Any:
        """The checkpoint of the run's last epoch, on all ranks; None without one."""
        found = None
        if self.hvd.rank() == 0 and self.t.store.exists(self.path):
            found = pickle.loads(self.t.store.read(self.path))
        return self.hvd.broadcast_object(found, root_rank=0, name="hvd.spark.checkpoint")

    def resume(self, model: Any, state: Any) -> int:
        """Loads model and optimizer from the checkpoint; returns the first epoch to train."""
        if state is None:
            return 0
        model.set_weights(state["weights"])
        restore(model.optimizer, model, state["optimizer"])
        self.history = state["history"]
        return int(state["epoch"]) + 1

    def optimizer_state(self, model: Any) -> list[Any]:
        """The optimizer's variables, with the learning rate of one rank."""
        optimizer = model.optimizer
        rate = optimizer.learning_rate
        values = []
        for variable in variables_of(optimizer):
            value = array(variable)
            values.append(value / numpy.asarray(self.hvd.size(), value.dtype) if variable is rate else value)
        return values

    def _keep(self, model: Any, epoch: int, logs: dict[str, Any]) -> None:
        for name, value in logs.items():
            self.history.setdefault(name, []).append(float(value))
        if self.hvd.rank() != 0:
            return
        kept = {"weights": model.get_weights(), "history": self.history, "epoch": epoch}
        if self.t.store.saving_runs():
            self.t.store.write(self.path, pickle.dumps({**kept, "optimizer": self.optimizer_state(model)}))
        for events, validates in zip(self.events, (False, True)):
            mine = {name: float(value) for name, value in logs.items() if name.startswith("val_") == validates}
            if mine:
                events.add(epoch, {f"epoch_{name.removeprefix('val_')}": value for name, value in mine.items()})
        self.copy_board()
        if self.t.settings["verbose"]:
            listed = "  ".join(f"{name} {float(value):.5g}" for name, value in logs.items())
            print(f"epoch {epoch + 1}/{self.t.settings['epochs']}  {listed}", flush=True)

    def validator(self, batches: Callable[[], Iterator[tuple[Any, ...]]], steps: int) -> Any:
        """A callback that adds val_… to an epoch's logs.  Keras' own validation would count rows twice or never.  In each epoch
        it repeats a generator's first batches, then continues where it stopped."""

        class Validate(self.keras.callbacks.Callback):  # type: ignore[misc,name-defined]
            def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
                found = self.model.evaluate(batches(), steps=steps, verbose=0, return_dict=True)
                if logs is not None:
                    logs.update({f"val_{name}": value for name, value in found.items()})

        return Validate()

    def checkpoint_callback(self) -> Any:
        """The callback that saves history and checkpoint."""
        run = self

        class Keep(self.keras.callbacks.Callback):  # type: ignore[misc,name-defined]
            def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
                run._keep(self.model, epoch, logs or {})

            def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
                run.copy_board()

        return Keep()


def _one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)
