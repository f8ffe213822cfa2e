"""--agreement inside fit() of Keras 2, with its present and its legacy optimizers; see agreement_checks.py."""

import os

import numpy as np
from agreement_checks import RANK, SIZE, found_so_far, names
from refusals import raises
from tensorflow import keras

import hvd.keras as hvd
from hvd._agreement import exchange
from hvd.exceptions import DivergedError

OPTIMIZERS = keras.optimizers, keras.optimizers.legacy
numbers = np.random.default_rng(3)
X = numbers.normal(size=(96 * SIZE, 6)).astype("float32")
Y = (X @ numbers.normal(size=(6, 3)) > 0.3).astype("float32")
mine = X[RANK::SIZE], Y[RANK::SIZE]


def model_of(of=keras.optimizers):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(12, input_shape=(6,)), keras.layers.Dense(3)])
    model.compile(optimizer=hvd.DistributedOptimizer(of.Adam(0.01)), loss="mse")
    return model


def fit(model, *others):
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), *others]
    model.fit(*mine, batch_size=8, shuffle=False, verbose=0, callbacks=callbacks)


class Changes(keras.callbacks.Callback):
    """Changes a number of a variable on one rank, after one step."""

    def __init__(self, culprit, choose, at=3):
        super().__init__()
        self.culprit, self.choose, self.at = culprit, choose, at

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.at and self.culprit == RANK:
            variable = self.choose(self.model)
            values = variable.numpy()
            values.reshape(-1)[0] += 1
            variable.assign(values)


def weight(model):
    return model.layers[0].kernel


def moment(model):
    variables = model.optimizer.variables
    variables = variables() if callable(variables) else variables
    return next(v for v in variables if tuple(v.shape) == (6, 12))


def check_equal_ranks_are_not_reported():
    for of in OPTIMIZERS:
        model = model_of(of)
        fit(model)
        fit(model, hvd.elastic.CommitStateCallback(hvd.elastic.KerasState(model)))
    assert found_so_far() == 0 and len(exchange._exchanges) >= 2


def check_flips_are_found_where_they_are():
    for of in OPTIMIZERS:
        for culprit, (pattern, choose) in enumerate(
            ((r"parameter \S*kernel\S*", weight), (r"(optimizer state|parameter) \S*kernel\S*", moment))
        ):
            error = raises(DivergedError, lambda o=of, c=culprit, v=choose: fit(model_of(o), Changes(c, v)))
            names(str(error), pattern, culprit)


def check_the_commit_compares_too():
    model = model_of()
    callbacks = [Changes(1, weight), hvd.elastic.CommitStateCallback(hvd.elastic.KerasState(model), 1)]
    error = raises(DivergedError, lambda: model.fit(*mine, batch_size=8, verbose=0, callbacks=callbacks))
    names(str(error), r"parameter \S+", 1)


def check_repair():
    os.environ["HVD_AGREEMENT"] = "repair"
    try:
        model = model_of()
        fit(model, Changes(1, weight))
        told = hvd.allgather_object([value.tolist() for value in model.get_weights()])
        assert told[0] == told[1] == told[2] and exchange._repairs == (RANK == 1)
    finally:
        os.environ["HVD_AGREEMENT"] = "stop"
