"""A Keras estimator's ranks: each reads its rows and calls fit() with hvd.keras; rank 0 keeps checkpoints in the store."""

from __future__ import annotations

import os
import pickle
import tempfile
from typing import Any

import numpy

from hvd.spark.ml.estimator import Training
from hvd.spark.ml.tables import read_share


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


def shaped(inputs: list[Any], shapes: Any) -> list[Any]:
    """Inputs in the shapes asked for; a column of numbers without one is [rows, 1]."""
    if shapes:
        return [value.reshape(shape) for value, shape in zip(inputs, shapes)]
    return [value.reshape(-1, 1) if value.ndim == 1 else value for value in inputs]


def train(training: Training) -> dict[str, Any] | None:
    """One rank's training.  Rank 0 returns the model's weights, the history and the width of each output."""
    import keras

    import hvd.keras as hvd

    hvd.init()
    settings, work, store = training.settings, training.work, training.store
    seed = settings["random_seed"]
    if seed is not None:
        keras.utils.set_random_seed(int(seed) + hvd.rank())
    model = unpack(work["model"], settings["custom_objects"])
    names = [*training.features, *training.labels, *([training.weight] if training.weight else [])]

    def share(path: str) -> tuple[Any, ...]:
        data, _ = read_share(
            store, path, list(dict.fromkeys(names)), hvd.rank(), hvd.size(), settings["transformation_fn"]
        )  # fmt: skip
        x = shaped([data[name] for name in training.features], settings["input_shapes"])
        y = [data[name] for name in training.labels]
        weight = (data[training.weight].astype(numpy.float32),) if training.weight else ()
        return (x if len(x) > 1 else x[0], y if len(y) > 1 else y[0], *weight)

    x, y, *weight = share(training.train_path)
    path = store.get_checkpoint_path(training.run_id)
    found = store.read(path) if hvd.rank() == 0 and store.exists(path) else None
    state = pickle.loads(found) if found is not None else None
    state = hvd.broadcast_object(state, root_rank=0, name="hvd.spark.checkpoint")
    optimizer = keras.optimizers.deserialize(work["optimizer"], custom_objects=settings["custom_objects"])
    options = {"compression": c} if (c := settings["gradient_compression"]) else {}
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer, **options),
        loss=work["loss"],
        loss_weights=settings["loss_weights"],
        **({"weighted_metrics": work["metrics"]} if training.weight else {"metrics": work["metrics"]}),
    )
    history: dict[str, list[float]] = {}
    first = 0
    if state is not None:
        model.set_weights(state["weights"])
        model.optimizer.build(model.trainable_variables)
        for variable, value in zip(model.optimizer.variables, state["optimizer"]):
            variable.assign(value)
        history, first = state["history"], state["epoch"] + 1

    class Keep(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        """History of all runs together, and a checkpoint after each epoch."""

        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
            for name, value in (logs or {}).items():
                history.setdefault(name, []).append(float(value))
            if hvd.rank() == 0:
                kept = {"weights": model.get_weights(), "history": history, "epoch": epoch}
                kept["optimizer"] = [numpy.asarray(variable) for variable in model.optimizer.variables]
                store.write(path, pickle.dumps(kept))
                if settings["verbose"]:
                    listed = "  ".join(f"{name} {float(value):.5g}" for name, value in (logs or {}).items())
                    print(f"epoch {epoch + 1}/{settings['epochs']}  {listed}", flush=True)

    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.fit(
        x,
        y,
        sample_weight=weight[0] if weight else None,
        batch_size=settings["batch_size"],
        epochs=settings["epochs"],
        initial_epoch=first,
        shuffle=settings["shuffle"],
        steps_per_epoch=settings["train_steps_per_epoch"],
        validation_data=share(training.val_path) if training.validates else None,
        validation_batch_size=settings["val_batch_size"],
        validation_steps=settings["validation_steps_per_epoch"],
        callbacks=[*callbacks, *(settings["callbacks"] or ()), Keep()],
        verbose=0,
    )
    if hvd.rank() != 0:
        return None
    one = [value[:1] for value in x] if isinstance(x, list) else x[:1]
    outputs = model.predict(one, verbose=0)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return {"weights": model.get_weights(), "history": history, "widths": [int(numpy.size(value)) for value in outputs]}
