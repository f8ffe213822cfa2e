"""The pages' programs for TensorFlow."""

import numpy as np
import snippets
import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()


def check_the_manual():
    model = tf.Module()
    model.weight = tf.Variable([float(hvd.rank() + 1)])
    with tf.GradientTape() as tape:
        loss = model.weight * (hvd.rank() + 1)
    after = snippets.run("man/hvd-tensorflow.7", "hvd.DistributedGradientTape", {"tape": tape, "model": model})
    assert model.weight.numpy().tolist() == [1.0]
    mean = (hvd.size() + 1) / 2
    assert after["tape"].gradient(loss, [model.weight])[0].numpy().tolist() == [mean]


def check_the_same_batch():
    @tf.function
    def loss_and_gradients(weights, x, y):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_mean((tf.linalg.matvec(x, weights) - y) ** 2)
        return loss, tape.gradient(loss, weights)

    names = snippets.regression(np) | {"loss_and_gradients": loss_and_gradients}
    snippets.same_batch(hvd, names | {"weights": tf.constant(names["weights"])})
