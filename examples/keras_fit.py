"""Handwritten digits on several ranks with Keras 3: model.fit(), on TensorFlow, torch or JAX.

    hvdrun -np 2 examples/keras_fit.py
    KERAS_BACKEND=torch hvdrun -np 2 examples/keras_fit.py

1797 images of 8 x 8 pixels come with scikit-learn; a fifth of them is held out.
Comments [1] to [5] mark the distributed parts; without hvdrun the script runs alone.
"""

from __future__ import annotations

import keras
import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

import horovod.keras as hvd


def main(epochs: int = 8, batch: int = 32, rate: float = 0.001) -> float:
    """Trains; returns the accuracy on the held-out images."""
    hvd.init()  # [1]
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("int64")
    order = np.random.default_rng(1).permutation(len(x))
    held_out, training = order[: len(x) // 5], order[len(x) // 5 :]
    mine = training[: len(training) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]  # [2] each rank has its own images

    layers = [keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.Adam(rate * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)  # [3] gradients are averaged over all ranks
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # [4] all ranks start from the same weights
        hvd.callbacks.MetricAverageCallback(),  # metrics are averaged over all ranks
        hvd.callbacks.LearningRateWarmupCallback(rate * hvd.size(), warmup_epochs=2),
    ]
    verbose = 2 if hvd.rank() == 0 else 0
    model.fit(x[mine], y[mine], batch_size=batch, epochs=epochs, callbacks=callbacks, verbose=verbose)
    accuracy = float(model.evaluate(x[held_out], y[held_out], verbose=0)[1])
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%} on {len(held_out)} held-out images, {hvd.size()} ranks", flush=True)
    return accuracy


if __name__ == "__main__":
    main()
