"""A Keras estimator's ranks: each streams its rows to fit() with hvd.keras; rank 0 keeps checkpoints in the store."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any, Callable

import numpy

from hvd.spark.ml.share import Share
from hvd.spark.ml.training import Training, steps_of


def pack(model: Any) -> bytes:
    """A Keras model as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def unpack(packed: bytes, custom_objects: Any = None) -> Any:
    """The model again, not compiled."""
    import keras

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(packed)
        return keras.models.load_model(path, custom_objects=custom_objects, compile=False)


def shaped(inputs: list[Any], shapes: Any, model: Any) -> list[Any]:
    """Inputs in the shapes asked for, else in those of the model's inputs; a column of numbers without any is [rows, 1]."""
    if shapes:
        return [value.reshape(shape) for value, shape in zip(inputs, shapes)]
    wanted = [tuple(spec.shape[1:]) for spec in getattr(model, "inputs", None) or ()]
    return [_as(value, wanted[i] if i < len(wanted) else ()) for i, value in enumerate(inputs)]


def _as(value: Any, shape: tuple[int | None, ...]) -> Any:
    """A vector column as an image, say, where the numbers of values agree; Keras says where they do not."""
    if shape and None not in shape and value[:1].size == math.prod(shape):  # type: ignore[arg-type]
        return value.reshape(-1, *shape)
    return value.reshape(-1, 1) if value.ndim == 1 else value


def train(training: Training) -> dict[str, Any] | None:
    """One rank's training.  Rank 0 returns the model's weights, the history and the width of each output."""
    import keras

    import hvd.keras as hvd

    hvd.init()
    settings = training.settings
    if settings["random_seed"] is not None:
        keras.utils.set_random_seed(int(settings["random_seed"]) + hvd.rank())
    model = unpack(training.work["model"], settings["custom_objects"])
    run = _Run(training, model, keras, hvd)
    state = run.checkpoint()
    _compile(model, training, keras, hvd)
    first = run.resume(model, state)
    share, val = training.shares(hvd)
    size = settings["batch_size"]
    val_size = settings["val_batch_size"] or size
    steps = steps_of(share, size, settings["train_steps_per_epoch"], hvd)
    validation = []
    if val is not None:
        val_steps = steps_of(val, val_size, settings["validation_steps_per_epoch"], hvd)
        validation = [run.validator(lambda: run.epoch(val, val_size, val_steps), val_steps)]
    model.fit(
        run.batches(share, size, steps, first if settings["shuffle"] else None),
        epochs=settings["epochs"],
        initial_epoch=first,
        steps_per_epoch=steps,
        shuffle=False,  # which share.py does
        callbacks=[
            *validation,
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            *(settings["callbacks"] or ()),
            *run.best_keeper(),
            run.keeper(),
        ],
        verbose=0,
    )
    if hvd.rank() != 0:
        return None
    run.load_best(model)
    outputs = model.predict(run.inputs(share.first), verbose=0)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return {"weights": model.get_weights(), "history": run.history, "widths": [int(numpy.size(value)) for value in outputs]}


def _compile(model: Any, training: Training, keras: Any, hvd: Any) -> None:
    settings, work = training.settings, training.work
    optimizer = keras.optimizers.deserialize(work["optimizer"], custom_objects=settings["custom_objects"])
    options = {"backward_passes_per_step": settings["backward_passes_per_step"]}
    if settings["gradient_compression"]:
        options["compression"] = settings["gradient_compression"]
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer, **options),
        loss=work["loss"],
        loss_weights=settings["loss_weights"],
        **({"weighted_metrics": work["metrics"]} if training.weight else {"metrics": work["metrics"]}),
    )


class _Run:
    """Batches as fit() takes them, the history of all runs of this name together, and the checkpoint."""

    def __init__(self, training: Training, model: Any, keras: Any, hvd: Any) -> None:
        self.t, self.model, self.keras, self.hvd = training, model, keras, hvd
        self.path = training.store.get_checkpoint_path(training.run_id)
        self.history: dict[str, list[float]] = {}
        self.folder: Any = None  # where rank 0 keeps the best model so far

    def best_keeper(self) -> list[Any]:
        """The checkpoint_callback, on rank 0, with a file to write to."""
        callback = self.t.settings["checkpoint_callback"]
        if callback is None or self.hvd.rank() != 0:
            return []
        self.folder = tempfile.TemporaryDirectory()
        name = "best.weights.h5" if getattr(callback, "save_weights_only", False) else "best.keras"
        callback.filepath = os.path.join(self.folder.name, name)
        return [callback]

    def load_best(self, model: Any) -> None:
        """Gives the model the weights that the checkpoint_callback kept."""
        if self.folder is not None:
            with self.folder:
                path = self.t.settings["checkpoint_callback"].filepath
                if os.path.exists(path):
                    model.load_weights(path)

    def inputs(self, batch: dict[str, Any]) -> Any:
        """One array, or a tuple of them."""
        return _one_or_all(shaped([batch[name] for name in self.t.features], self.t.settings["input_shapes"], self.model))

    def batches(self, share: Share, size: int, steps: int, first_epoch: int | None = None) -> Iterator[tuple[Any, ...]]:
        """Epochs without end.  first_epoch: shuffles, in the order of that epoch and the later ones."""
        for epoch in itertools.count(first_epoch or 0):
            yield from self.epoch(share, size, steps, None if first_epoch is None else self.t.order(self.hvd.rank(), epoch))

    def epoch(self, share: Share, size: int, steps: int, order: Any = None) -> Iterator[tuple[Any, ...]]:
        """`steps` batches: (inputs, labels), or with weights."""
        for batch in itertools.islice(share.cycle(size, order), steps):
            labels = [batch[name] for name in self.t.labels]
            weight = batch[self.t.weight].astype(numpy.float32) if self.t.weight else None
            given = () if weight is None else (_one_or_all([weight] * len(labels)),)
            yield (self.inputs(batch), _one_or_all(labels), *given)

    def checkpoint(self) -> Any:
        """What the run's last epoch left, on all ranks; None without."""
        found = None
        if self.hvd.rank() == 0 and self.t.store.exists(self.path):
            found = pickle.loads(self.t.store.read(self.path))
        return self.hvd.broadcast_object(found, root_rank=0, name="hvd.spark.checkpoint")

    def resume(self, model: Any, state: Any) -> int:
        """Sets model and optimizer to the checkpoint's; the epoch to begin with."""
        if state is None:
            return 0
        model.set_weights(state["weights"])
        model.optimizer.build(model.trainable_variables)
        for variable, value in zip(model.optimizer.variables, state["optimizer"]):
            variable.assign(value)
        self.history = state["history"]
        return int(state["epoch"]) + 1

    def _keep(self, model: Any, epoch: int, logs: dict[str, Any]) -> None:
        for name, value in logs.items():
            self.history.setdefault(name, []).append(float(value))
        if self.hvd.rank() != 0:
            return
        kept = {"weights": model.get_weights(), "history": self.history, "epoch": epoch}
        kept["optimizer"] = [self.keras.ops.convert_to_numpy(variable) for variable in model.optimizer.variables]
        if self.t.store.saving_runs():
            self.t.store.write(self.path, pickle.dumps(kept))
        if self.t.settings["verbose"]:
            listed = "  ".join(f"{name} {float(value):.5g}" for name, value in logs.items())
            print(f"epoch {epoch + 1}/{self.t.settings['epochs']}  {listed}", flush=True)

    def validator(self, batches: Callable[[], Iterator[tuple[Any, ...]]], steps: int) -> Any:
        """A callback that adds val_… to an epoch's logs.  Keras' own validation begins a generator anew for each epoch
        with the batches that it saw first, and goes on where it stopped: rows would count twice or never."""

        class Validate(self.keras.callbacks.Callback):  # type: ignore[misc,name-defined]
            def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
                found = self.model.evaluate(batches(), steps=steps, verbose=0, return_dict=True)
                if logs is not None:
                    logs.update({f"val_{name}": value for name, value in found.items()})

        return Validate()

    def keeper(self) -> Any:
        """The callback that keeps history and checkpoint."""
        run = self

        class Keep(self.keras.callbacks.Callback):  # type: ignore[misc,name-defined]
            def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
                run._keep(self.model, epoch, logs or {})

        return Keep()


def _one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)
