"""Handwritten digits with TensorFlow 2: a second job, on CPUs, prepares the batches.

    hvdrun -np 2 python -m horovod.tensorflow.data.compute_worker digits.json &
    hvdrun -np 2 examples/tensorflow_data_service.py digits.json

The file gets a key: keep it in a folder of your own, one that both jobs see.  The training ends the other job.
1797 images of 8 x 8 pixels come with scikit-learn; a fifth of them is held out.
"""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pixels [n, 64] in 0..1 and digits [n], for training and held out."""
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("int64")
    order = np.random.default_rng(1).permutation(len(x))
    held_out, training = order[: len(x) // 5], order[len(x) // 5 :]
    return x[training], y[training], x[held_out], y[held_out]


def noisy(pixels: tf.Tensor, digit: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What the compute job does to each image [64]."""
    return pixels + tf.random.normal([64], stddev=0.05), digit


def main(config_file: str, steps: int = 300, batch: int = 32, rate: float = 0.2) -> float:
    """Trains; returns the accuracy on the held-out images."""
    hvd.init()
    config = TfDataServiceConfig.read(config_file, wait_for_file_creation=True)
    x, y, x_test, y_test = load_data()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).repeat().map(noisy).batch(batch, drop_remainder=True)
    # Each batch goes to one rank, in turn.
    dataset = dataset.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True, round_robin=True)

    weights = tf.Variable(tf.zeros([64, 10]))
    bias = tf.Variable(tf.zeros([10]))

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, images @ weights + bias)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip((weights, bias), tape.gradient(loss, [weights, bias])):
            variable.assign_sub(rate * gradient)
        return loss

    for number, (images, labels) in enumerate(dataset.take(steps), 1):
        loss = step(images, labels)
        if number % 100 == 0 and hvd.rank() == 0:
            print(f"step {number}: loss {float(loss):.3f}", flush=True)
    accuracy = float(np.mean(np.argmax(x_test @ weights.numpy() + bias.numpy(), 1) == y_test))
    hvd.barrier()  # all ranks have their data
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%} on {len(x_test)} held-out images, {hvd.size()} ranks", flush=True)
        config.compute_client().shutdown()
    return accuracy


if __name__ == "__main__":
    main(sys.argv[1])
