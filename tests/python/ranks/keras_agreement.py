"""--agreement inside Keras' fit(), on the backend that KERAS_BACKEND names; see agreement_checks.py."""

import os
import time

import keras
import numpy as np
from agreement_checks import RANK, SIZE, Patience, found_so_far, names
from refusals import raises

import hvd.keras as hvd
from hvd._agreement import exchange
from hvd.exceptions import DivergedAgainError, DivergedError
from hvd.keras import _fit_agreement

numbers = np.random.default_rng(3)
X = numbers.normal(size=(96 * SIZE, 6)).astype("float32")
Y = (X @ numbers.normal(size=(6, 3)) > 0.3).astype("float32")
mine = X[RANK::SIZE], Y[RANK::SIZE]


def model_of(**arguments):
    if RANK == 2:
        keras.layers.Dense(3)  # changes the names that Keras gives
    keras.utils.set_random_seed(1)
    parts = [keras.layers.Dense(12), keras.layers.BatchNormalization(), keras.layers.Dropout(0.1), keras.layers.Dense(3)]
    model = keras.Sequential([keras.layers.Input((6,)), *parts])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01, **arguments)), loss="mse")
    return model


def fit(model, *others, epochs=1, before=()):
    callbacks = [*before, hvd.callbacks.BroadcastGlobalVariablesCallback(0), *others]
    model.fit(*mine, batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)


class Changes(keras.callbacks.Callback):
    """Changes a number of a variable on one rank, after one step."""

    def __init__(self, culprit, choose, at=3):
        super().__init__()
        self.culprit, self.choose, self.at = culprit, choose, at

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.at and self.culprit == RANK:
            if hasattr(self.model, "jax_state_sync"):
                self.model.jax_state_sync()
            variable = self.choose(self.model)
            values = np.array(keras.ops.convert_to_numpy(variable))
            values.reshape(-1)[0] += 1
            variable.assign(values)


def weight(model):
    return model.layers[0].kernel


def moment(model):
    return next(v for v in model.optimizer.variables if v.path.endswith("dense_kernel_momentum") or "kernel" in v.path)


def check_equal_ranks_are_not_reported():
    model = model_of()
    fit(model, epochs=3)
    fit(model, hvd.elastic.CommitStateCallback(hvd.elastic.KerasState(model)))
    fit(model_of(gradient_accumulation_steps=2))
    (one, *_) = _fit_agreement._of_models.values()
    assert found_so_far() == 0 and one._step == 48 and one._layout, one._step


def check_flips_are_found_where_they_are():
    for culprit, (pattern, choose) in enumerate(
        ((r"parameter \S*kernel", weight), (r"optimizer state \S*kernel\S*|parameter \S*kernel", moment))
    ):
        error = raises(DivergedError, lambda c=culprit, of=choose: fit(model_of(), Changes(c, of)))
        names(str(error), f"({pattern})", culprit)


def check_a_change_of_the_last_step_is_found():
    for own in (True, False):
        model = model_of()
        before = [Changes(1, weight, at=11)]
        if own:
            error = raises(DivergedError, lambda of=model, first=before: fit(of, before=first, epochs=1))
            names(str(error), r"parameter \S+", 1)


def check_the_commit_compares_too():
    model = model_of()
    state = hvd.elastic.KerasState(model)
    callbacks = [Changes(1, weight), hvd.elastic.CommitStateCallback(state, 1)]
    error = raises(DivergedError, lambda: model.fit(*mine, batch_size=8, verbose=0, callbacks=callbacks))
    names(str(error), r"parameter \S+", 1)


def check_others_are_not_compared():
    """Optimizers that are not distributed, and variables that stay on their rank."""
    model = model_of()
    plain = keras.optimizers.SGD(0.1)
    model.compile(optimizer=plain, loss="mse")
    fit(model, Changes(1, weight))
    local = model_of()
    local.compile(
        optimizer=hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=[local.layers[0]]), loss="mse"
    )
    fit(local)
    assert len(set(hvd.allgather_object(float(keras.ops.convert_to_numpy(weight(local))[0, 0])))) > 1


class Skips(hvd.callbacks.BroadcastGlobalVariablesCallback):
    """Lacks the comparison of one batch on one rank."""

    def on_train_batch_end(self, batch, logs=None):
        if RANK != 1 or batch != 3:
            super().on_train_batch_end(batch, logs)


def check_a_skipped_step_holds_nobody_up():
    """The other ranks wait for a moment at most, and then report that rank 1 makes other steps."""
    with Patience():
        model = model_of()
        begun = time.monotonic()
        error = raises(DivergedError, lambda: model.fit(*mine, batch_size=8, epochs=2, verbose=0, callbacks=[Skips(0)]))
        assert time.monotonic() - begun < 60
        names(str(error), r"(parameter|optimizer state) \S+", 1)


def check_repair():
    os.environ["HVD_AGREEMENT"] = "repair"
    try:
        exchange._repairs = 0
        model = model_of()
        fit(model, Changes(1, weight))
        told = hvd.allgather_object([value.tolist() for value in (v.numpy() for v in _values(model))])
        assert told[0] == told[1] == told[2]
        assert exchange._repairs == (RANK == 1)
        error = raises((DivergedAgainError, DivergedError), lambda: fit(model, Changes(1, weight)))
        assert isinstance(error, DivergedAgainError) == (RANK == 1)
    finally:
        os.environ["HVD_AGREEMENT"] = "stop"


def _values(model):
    class Value:
        def __init__(self, variable):
            self.variable = variable

        def numpy(self):
            return np.array(keras.ops.convert_to_numpy(self.variable))

    return [Value(variable) for variable in model.trainable_variables]
