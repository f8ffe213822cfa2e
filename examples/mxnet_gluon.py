"""Handwritten digits on several ranks with MXNet's gluon: its training loop, with a distributed trainer.

    hvdrun -np 2 examples/mxnet_gluon.py

1797 images of 8 x 8 pixels come with scikit-learn; a fifth of them is held out.
Comments [1] to [4] mark the distributed parts; without hvdrun the script runs alone.
"""

from __future__ import annotations

import mxnet as mx
import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

import horovod.mxnet as hvd


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pixels [n, 64] in 0..1 and digits [n], for training and held out; the same split on every rank."""
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("float32")
    order = np.random.RandomState(1).permutation(len(x))
    held_out, training = order[: len(x) // 5], order[len(x) // 5 :]
    return x[training], y[training], x[held_out], y[held_out]


def main(epochs: int = 15, batch: int = 32, rate: float = 0.2) -> float:
    """Trains; returns the accuracy on the held-out images."""
    hvd.init()  # [1]
    x, y, x_test, y_test = load_data()
    net = mx.gluon.nn.HybridSequential()
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(64, activation="relu"), mx.gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)  # [2] all ranks start from the same weights
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": rate})  # [3] averages the gradients
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    for epoch in range(epochs):
        order = np.random.RandomState(epoch).permutation(len(x))
        mine = order[: len(order) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]  # [4] each rank has its own images
        total = 0.0
        for at in range(0, len(mine), batch):
            images, labels = mx.nd.array(x[mine[at : at + batch]]), mx.nd.array(y[mine[at : at + batch]])
            with mx.autograd.record():
                error = loss(net(images), labels)
            error.backward()
            trainer.step(len(images))  # this rank's number of images
            total += float(error.sum().asscalar())
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {total / len(mine):.3f}", flush=True)
    accuracy = float(np.mean(net(mx.nd.array(x_test)).asnumpy().argmax(1) == y_test))
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%} on {len(x_test)} held-out images, {hvd.size()} ranks", flush=True)
    return accuracy


if __name__ == "__main__":
    main()
