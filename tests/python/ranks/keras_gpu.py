"""Keras on TensorFlow, whose device is the one of tensorflow_gpu.py, which is loaded before this."""

import keras
import numpy as np
import tensorflow as tf

import horovod.keras as hvd


def check_fit_is_the_same_on_all_ranks() -> None:
    """Operations without a kernel of the device run on the CPU; gradients come from both."""
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(1)])
    # A pluggable device has no XLA.
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile=False)
    x = np.random.default_rng(hvd.rank()).normal(size=(32, 5)).astype("float32")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    history = model.fit(x, x.sum(1), batch_size=8, epochs=3, verbose=0, callbacks=callbacks)
    assert any("FAKEGPU" in v.value.device for v in model.trainable_variables)
    losses = history.history["loss"]
    assert losses[-1] < losses[0]
    for weight in model.get_weights():
        with tf.device("/device:CPU:0"):
            assert np.array_equal(hvd.allgather(weight[None]), np.stack([weight] * hvd.size()))
