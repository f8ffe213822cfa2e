"""Handwritten digits on several ranks with JAX and optax: one compiled step, gradients averaged inside it.

    hvdrun -np 2 examples/jax_digits.py

1797 images of 8 x 8 pixels come with scikit-learn; a fifth of them is held out.
Comments [1] to [5] mark the distributed parts; without hvdrun the script runs alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-not-found, unused-ignore]
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

import hvd.jax as hvd

Params = dict[str, jax.Array]


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pixels [n, 64] in 0..1 and digits [n], for training and held out; the same split on every rank."""
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("int32")
    order = np.random.default_rng(1).permutation(len(x))
    held_out, training = order[: len(x) // 5], order[len(x) // 5 :]
    return x[training], y[training], x[held_out], y[held_out]


def initial(key: jax.Array) -> Params:
    """64 pixels, 64 hidden units, 10 digits."""
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (64, 64)) * 0.1,
        "b1": jnp.zeros(64),
        "w2": jax.random.normal(second, (64, 10)) * 0.1,
        "b2": jnp.zeros(10),
    }


def logits(params: Params, x: Any) -> jax.Array:
    """[n, 64] to [n, 10]."""
    return jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss(params: Params, x: Any, y: Any) -> jax.Array:
    """The mean over this rank's images."""
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()  # type: ignore[no-any-return, unused-ignore]


def main(epochs: int = 10, batch: int = 32, rate: float = 1e-2) -> float:
    """Trains; returns the accuracy on the held-out images."""
    hvd.init()  # [1]
    x, y, x_test, y_test = load_data()
    params = initial(jax.random.PRNGKey(hvd.rank()))
    params = hvd.broadcast_parameters(params, root_rank=0)  # [2] all ranks start from the same weights
    optimizer = hvd.DistributedGradient(optax.adam(rate))  # [3] gradients are averaged over all ranks
    state = optimizer.init(params)

    @jax.jit
    def step(params: Params, state: Any, x: Any, y: Any) -> tuple[Params, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, hvd.allreduce(value)  # so is the printed loss

    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(x))
        mine = order[: len(order) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]  # [4] each rank has its own images
        for at in range(0, len(mine) - batch + 1, batch):
            rows = mine[at : at + batch]
            params, state, value = step(params, state, x[rows], y[rows])
            hvd.agreement.compare({"params": params, "state": state})  # [5] only with hvdrun --agreement
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {float(value):.3f}", flush=True)
    accuracy = float(np.mean(np.argmax(logits(params, x_test), 1) == y_test))
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%} on {len(x_test)} held-out images, {hvd.size()} ranks", flush=True)
    return accuracy


if __name__ == "__main__":
    main()
