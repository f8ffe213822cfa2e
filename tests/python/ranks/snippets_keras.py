"""The pages' programs for Keras."""

import keras
import numpy as np
import snippets

import horovod.keras as hvd

hvd.init()


def check_the_manual():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    names = {"model": model, "optimizer": keras.optimizers.SGD(0.01)}
    swaps = ((", ...)", ', loss="mse")'), ("(..., ", "(np.ones((8, 3)), np.ones((8, 1)), verbose=0, "))
    snippets.run("man/hvd-keras.7", "hvd.DistributedOptimizer", names | {"np": np}, *swaps)
    weights = [weight.tolist() for weight in model.get_weights()]
    assert hvd.allgather_object(weights) == [weights] * hvd.size()


def check_the_same_batch():
    snippets.same_batch(hvd, snippets.regression(np))
