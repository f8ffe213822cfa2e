"""The Keras job of slowness.py: fit() over tf.data, with one cause of slowness planted in it.

planted_keras_job.py CAUSE RANK STEPS; RANK -1: all ranks have it.
"""

from __future__ import annotations

import time
from typing import Any

import keras
import tensorflow as tf
from planted_cause import BATCH, STEPS, planted

import hvd.keras as hvd


def rows() -> tf.data.Dataset:
    """Batches of synthetic rows, changed slowly for that cause."""
    batches = tf.data.Dataset.from_tensors((tf.ones((BATCH, 256)), tf.ones((BATCH, 8)))).repeat(STEPS)

    def sleep(x: Any) -> Any:
        time.sleep(0.02)
        return x

    def slow(x: Any, y: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(sleep, [x], tf.float32), x.shape), y

    return batches.map(slow) if planted("tf.data: a map that sleeps") else batches


class Nuisances(keras.callbacks.Callback):  # type: ignore[misc]
    """The planted work at the end of each step of fit()."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if planted("Keras: a callback that sleeps"):
            time.sleep(0.02)


def main() -> None:
    """See the file's comment."""
    hvd.init()
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((256,)), dense(640, "relu"), dense(640, "relu"), dense(8)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), "mse")
    model.fit(rows(), steps_per_epoch=STEPS, verbose=0, callbacks=[Nuisances()])
    hvd.shutdown()


main()
