"""What a KerasEstimator's ranks do with its parameters, without Spark, on whichever backend Keras has here."""

import keras
import numpy as np
import pyarrow as pa
from estimator_tables import X, remove_folders, store, written

import hvd.keras as hvd
from hvd.spark.ml.keras_training import pack, train
from hvd.spark.ml.params import PARAMS
from hvd.spark.ml.training import Training

hvd.init()
RANK = hvd.rank()


def line():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])


def trained(path, kept, model=None, weight=None, validation=None, features=("x",), labels=("y",), metrics=None, **given):
    settings = {name: default for name, (default, _) in PARAMS.items()}
    settings.update({"batch_size": 5, "epochs": 3, "verbose": 0, "random_seed": 1, **given})
    optimizer = keras.optimizers.serialize(keras.optimizers.SGD(0.2, momentum=0.5))
    work = {"model": pack(model or line()), "optimizer": optimizer, "loss": "mse", "metrics": metrics}
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
        """Says that the second epoch was the best, whatever it learned."""

        def on_epoch_end(self, epoch, logs=None):
            logs["level"] = next(levels)
            if epoch == 1:
                best.extend(self.model.get_weights())

    for weights_only in (False, True):
        callback = hvd.callbacks.BestModelCheckpoint(monitor="level", mode="min", save_weights_only=weights_only)
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


def check_nothing_is_left():
    remove_folders()
