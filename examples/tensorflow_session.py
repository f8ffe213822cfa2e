"""Handwritten digits on several ranks in the style of TensorFlow 1: a graph, placeholders, a MonitoredTrainingSession.

    hvdrun -np 2 examples/tensorflow_session.py

1797 images of 8 x 8 pixels come with scikit-learn; a fifth of them is held out.
Comments [1] to [4] mark the distributed parts; without hvdrun the script runs alone.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

import horovod.tensorflow as hvd

v1 = tf.compat.v1


def main(steps: int = 400, batch: int = 32, rate: float = 0.2) -> float:
    """Trains; returns the accuracy on the held-out images."""
    hvd.init()  # [1]
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("int64")
    order = np.random.default_rng(1).permutation(len(x))
    held_out, training = order[: len(x) // 5], order[len(x) // 5 :]
    random = np.random.default_rng(100 + hvd.rank())  # [2] each rank draws its own images

    with tf.Graph().as_default():
        images, labels = v1.placeholder(tf.float32, [None, 64]), v1.placeholder(tf.int64, [None])
        w1 = v1.get_variable("w1", [64, 64])
        b1 = v1.get_variable("b1", [64], initializer=v1.zeros_initializer())
        w2 = v1.get_variable("w2", [64, 10])
        logits = tf.nn.relu(images @ w1 + b1) @ w2
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        step = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(rate / 4, 0.9))  # [3] averages the gradients
        train = optimizer.minimize(loss, global_step=step)

        hook = hvd.BroadcastGlobalVariablesHook(0)  # [4] all ranks start from the same weights
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for number in range(steps):
                drawn = random.choice(training, batch)
                _, shown = session.run([train, loss], {images: x[drawn], labels: y[drawn]})
                if hvd.rank() == 0 and number % 100 == 99:
                    print(f"step {number + 1}: loss {shown:.3f}", flush=True)
            accuracy = float(session.run(right, {images: x[held_out], labels: y[held_out]}))
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%} on {len(held_out)} held-out images, {hvd.size()} ranks", flush=True)
    return accuracy


if __name__ == "__main__":
    main()
