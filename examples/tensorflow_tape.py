"""Handwritten digits on several ranks with TensorFlow 2: a hand-written training loop with a gradient tape.

    hvdrun -np 2 examples/tensorflow_tape.py

1797 images of 8 x 8 pixels come with scikit-learn; a fifth of them is held out.
Comments [1] to [5] mark the distributed parts; without hvdrun the script runs alone.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

import horovod.tensorflow as hvd


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pixels [n, 64] in 0..1 and digits [n], for training and held out; the same split on every rank."""
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("int64")
    order = np.random.default_rng(1).permutation(len(x))
    held_out, training = order[: len(x) // 5], order[len(x) // 5 :]
    return x[training], y[training], x[held_out], y[held_out]


class Net(tf.Module):
    """64 pixels, 64 hidden units, 10 digits."""

    def __init__(self) -> None:
        self.w1 = tf.Variable(tf.random.normal([64, 64], stddev=0.1))
        self.b1 = tf.Variable(tf.zeros([64]))
        self.w2 = tf.Variable(tf.random.normal([64, 10], stddev=0.1))
        self.b2 = tf.Variable(tf.zeros([10]))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[n, 64] to [n, 10]."""
        return tf.nn.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2


def main(epochs: int = 15, batch: int = 32, rate: float = 0.2) -> float:
    """Trains; returns the accuracy on the held-out images."""
    hvd.init()  # [1]
    x, y, x_test, y_test = load_data()
    model = Net()
    hvd.broadcast_variables(model.variables, root_rank=0)  # [2] all ranks start from the same weights

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
            loss = tf.reduce_mean(losses)
        tape = hvd.DistributedGradientTape(tape)  # [3] gradients are averaged over all ranks
        for variable, grad in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
            variable.assign_sub(rate * grad)
        return hvd.allreduce(loss)  # so is the printed loss

    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(x))
        mine = order[: len(order) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]  # [5] each rank has its own images
        for at in range(0, len(mine), batch):
            loss = step(x[mine[at : at + batch]], y[mine[at : at + batch]])
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {float(loss):.3f}", flush=True)
    accuracy = float(np.mean(np.argmax(model(x_test), 1) == y_test))
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%} on {len(x_test)} held-out images, {hvd.size()} ranks", flush=True)
    return accuracy


if __name__ == "__main__":
    main()
