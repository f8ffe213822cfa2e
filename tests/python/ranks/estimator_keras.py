"""The parameters of a KerasEstimator on its ranks, without Spark, on any backend of Keras."""

import os

import numpy as np
import pyarrow as pa
from estimator_tables import X, remove_folders, store, written

import hvd.keras as hvd
from hvd._keras_package import keras
from hvd.spark.ml.datamodule import DataModule
from hvd.spark.ml.defaults import ACCEPTED, PARAMS
from hvd.spark.ml.keras_training import pack, train
from hvd.spark.ml.training import Training

hvd.init()
RANK = hvd.rank()


def line():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])


def trained(path, kept, model=None, weight=None, validation=None, features=("x",), labels=("y",), metrics=None, loss="mse",
            optimizer=None, **given):  # fmt: skip
    defaults = {**{name: default for name, (default, _) in PARAMS.items()}, **ACCEPTED}
    settings = {**defaults, "batch_size": 5, "epochs": 3, "verbose": 0, "random_seed": 1, **given}
    chosen = keras.optimizers.serialize(optimizer or keras.optimizers.SGD(0.1, momentum=0.5))
    work = {"model": pack(model or line()), "optimizer": chosen, "optimizer_state": None, "loss": loss, "metrics": metrics}
    result = train(
        Training(kept, given.get("run_id", "run"), list(features), list(labels), weight, bool(validation), settings, work,
                 train_path=path, val_path=validation or "")
    )  # fmt: skip
    return hvd.broadcast_object(result, root_rank=0)


def numbers(result):
    return [float(np.ravel(value)[0]) for value in result["weights"]]


def check_rows_of_weight_zero_do_not_count():
    good = np.arange(60) % 3 != 0
    kept = store()
    path = written(kept, y=np.where(good, 2 * X, -7 * X + 3), weight=good.astype("float32"))
    found = trained(path, kept, weight="weight", epochs=8)
    assert np.allclose(numbers(found), [2, 0], atol=0.1) and found["widths"] == [1], found


def check_callbacks_on_every_rank_and_a_resumed_run_like_one_in_one_go():
    epochs = []

    class Seen(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            epochs.append(epoch)

    kept = store()
    path = written(kept, y=X**2)
    whole = trained(path, kept, epochs=4, run_id="whole", validation=path, metrics=["mae"], callbacks=[Seen()])
    assert epochs == [0, 1, 2, 3]
    assert {name: len(v) for name, v in whole["history"].items()} == dict.fromkeys(("loss", "mae", "val_loss", "val_mae"), 4)
    options = {"run_id": "parts", "validation": path, "metrics": ["mae"]}
    first = trained(path, kept, epochs=2, **options)
    resumed = trained(path, kept, epochs=4, **options)
    assert first["history"]["loss"] == resumed["history"]["loss"][:2]
    for name, values in whole["history"].items():
        assert np.allclose(values, resumed["history"][name], rtol=1e-4), (name, values, resumed["history"][name])
    assert np.allclose(numbers(whole), numbers(resumed), rtol=1e-4)


def check_a_transformation_and_steps():
    kept = store()
    path = written(kept, y=np.zeros(60))

    def fixed(frame):
        frame = frame[frame["x"] >= -0.2]
        return frame.assign(y=frame["x"] * 3.0)

    found = trained(path, kept, transformation_fn=fixed, epochs=12)
    assert np.allclose(numbers(found), [3, 0], atol=0.2), found
    assert len(trained(path, kept, train_steps_per_epoch=12, epochs=2, run_id="more")["history"]["loss"]) == 2


def check_several_inputs_and_labels_with_weights():
    keras.utils.set_random_seed(0)
    a, b = keras.Input((1,), name="a"), keras.Input((2,), name="b")
    both = keras.layers.Concatenate()([a, b])
    model = keras.Model([a, b], [keras.layers.Dense(1, name="one")(both), keras.layers.Dense(2, name="two")(both)])
    kept = store()
    pair = pa.FixedSizeListArray.from_arrays(np.stack([X, X**2], 1).ravel(), 2)
    path = written(kept, pair=pair, y=X + X**2, z=pair, w=np.ones(60, "float32"))
    found = trained(path, kept, model, "w", path, ["x", "pair"], ["y", "z"], epochs=8)
    assert found["widths"] == [1, 2] and found["history"]["val_loss"][-1] < 0.2, found["history"]


def check_a_pool_smaller_than_the_share():
    kept = store()
    path = written(kept, y=2 * X)
    assert np.allclose(numbers(trained(path, kept, shuffle_buffer_size=6, epochs=6)), [2, 0], atol=0.1)


def check_the_best_model_is_returned():
    kept = store()
    path = written(kept, y=2 * X)
    levels = iter([0.5, 0.1, 0.9])
    best = []

    class Judge(keras.callbacks.Callback):
        """Reports the second epoch as the best, independent of the training."""

        def on_epoch_end(self, epoch, logs=None):
            logs["level"] = next(levels)
            if epoch == 1:
                best.extend(self.model.get_weights())

    for weights_only, mode in ((False, "min"), (True, "auto")):
        callback = hvd.callbacks.BestModelCheckpoint(monitor="level", mode=mode, save_weights_only=weights_only)
        levels, best = iter([0.5, 0.1, 0.9]), []
        found = trained(path, kept, callbacks=[Judge()], checkpoint_callback=callback, run_id=f"best{weights_only}")
        assert all(np.array_equal(a, b) for a, b in zip(hvd.broadcast_object(best, 0), found["weights"])), (best, found)
        assert len(found["history"]["loss"]) == 3


def check_a_vector_column_gets_the_shape_of_the_models_input():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
    kept = store()
    path = written(kept, image=pa.FixedSizeListArray.from_arrays(np.repeat(X, 6), 6), y=X)
    assert trained(path, kept, model, features=["image"])["widths"] == [1]


def check_a_store_that_keeps_no_runs():
    kept = store()
    kept.save_runs = False
    path = written(kept, y=2 * X)
    trained(path, kept, run_id="unkept")
    hvd.allreduce(np.zeros(1))  # rank 0 has ended
    assert not kept.exists(kept.get_checkpoint_path("unkept"))


def check_the_rate_is_multiplied_by_the_ranks_and_kept_as_of_one():
    """A step over all rows, then one after a resumed run, equal those of one process with twice the rate."""
    kept = store()
    path = written(kept, y=2 * X)
    schedules = keras.optimizers.schedules
    for name, rate in (("number", 0.05), ("schedule", schedules.PiecewiseConstantDecay([1], [0.05, 0.02]))):
        twice = 0.1 if name == "number" else schedules.PiecewiseConstantDecay([1], [0.1, 0.04])
        alone = line()
        alone.compile(keras.optimizers.SGD(twice), "mse")
        seen = []
        rates = hvd.callbacks.LearningRateScheduleCallback(initial_lr=77.0, multiplier=1.0)
        for epochs in (1, 2):
            alone.train_on_batch(X.reshape(-1, 1), 2 * X.reshape(-1, 1))
            more = [rates] if name == "number" else []
            options = {"batch_size": 30, "shuffle": False, "epochs": epochs, "run_id": name, "callbacks": more}
            found = trained(path, kept, optimizer=keras.optimizers.SGD(rate), **options)
            assert np.allclose(numbers(found), [float(np.ravel(w)[0]) for w in alone.get_weights()], atol=1e-5), (name, epochs)
            seen.append(any(np.isclose(value, 0.05) for value in found["optimizer"] if value.size == 1))
        assert name == "schedule" or seen == [True, True]


def check_the_logs_lie_in_the_store():
    kept = store()
    path = written(kept, y=X)
    trained(path, kept, epochs=2, validation=path, run_id="logged")
    found = kept.list(kept.get_logs_path("logged"))
    assert [name.split("/")[-2] for name in found] == ["train", "validation"], found
    assert all(kept.read(name).count(b"epoch_loss") == 2 for name in found)


def check_a_users_tensorboard_writes_into_the_store():
    class TensorBoard(keras.callbacks.Callback):
        """Keras' own callback needs TensorFlow."""

        def __init__(self):
            super().__init__()
            self.log_dir = "here"

        def on_epoch_end(self, epoch, logs=None):
            os.makedirs(f"{self.log_dir}/train", exist_ok=True)
            with open(f"{self.log_dir}/train/events", "a") as file:
                file.write(f"{epoch}\n")

    kept, real = store(), keras.callbacks.TensorBoard
    keras.callbacks.TensorBoard = TensorBoard
    try:
        trained(written(kept, y=X), kept, epochs=2, run_id="board", callbacks=[TensorBoard()])
    finally:
        keras.callbacks.TensorBoard = real
    hvd.allreduce(np.zeros(1))
    assert not os.path.exists("here")
    (name,) = kept.list(kept.get_logs_path("board"))
    assert name.endswith("/logs/train/events") and kept.read(name) == b"0\n1\n"


def mean_of_differences(one, other):
    """[rows] of two tensors with two numbers in each row."""
    if hasattr(keras, "ops"):
        return keras.ops.mean(keras.ops.reshape(one, (-1, 2)) - keras.ops.reshape(other, (-1, 2)), axis=-1)
    import tensorflow as tf  # Keras 2 has no operations of its own

    return tf.reduce_mean(tf.reshape(one, (-1, 2)) - tf.reshape(other, (-1, 2)), axis=-1)


def check_labels_get_the_outputs_shape_or_the_one_asked_for():
    kept = store()
    pair = pa.FixedSizeListArray.from_arrays(np.stack([X, X**2], 1).ravel(), 2)
    path = written(kept, y=X, pair=pair)
    seen = []

    def loss(label, output):
        seen.append((tuple(label.shape[1:]), tuple(output.shape[1:])))
        return mean_of_differences(output, label)

    keras.utils.set_random_seed(0)
    for shapes, expected in ((None, (1, 2)), ([[2]], (2,)), ([[-1, 2, 1]], (2, 1))):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2), keras.layers.Reshape((1, 2))])
        run = f"labels{len(expected)}{expected[0]}"
        trained(path, kept, model, labels=["pair"], loss=loss, epochs=1, label_shapes=shapes, run_id=run)
        label, output = seen[0]
        known = [(got, wanted) for got, wanted in zip(label, expected) if got is not None]  # Keras 2 traces without sizes
        assert len(label) == len(expected) and all(got == wanted for got, wanted in known), seen
        assert output == (1, 2) and len(set(seen)) == 1, seen
        seen.clear()


class Generator(DataModule):
    """Batches of all rows in fit()'s form."""

    def train_data(self):
        while True:
            yield X.reshape(-1, 1), 2 * X.reshape(-1, 1)

    def val_data(self):
        yield X.reshape(-1, 1), 2 * X.reshape(-1, 1)


def check_a_data_module_in_place_of_the_share():
    kept = store()
    path = written(kept, y=np.zeros(60))
    found = trained(path, kept, data_module=Generator, validation=path, train_steps_per_epoch=40, epochs=1, run_id="module")
    assert np.allclose(numbers(found), [2, 0], atol=0.1) and found["widths"] == [1], found
    assert found["history"]["val_loss"][0] < 0.1


def check_nothing_is_left():
    remove_folders()
