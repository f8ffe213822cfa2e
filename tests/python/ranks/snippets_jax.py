"""The pages' programs for JAX."""

from unittest import SkipTest

import jax
import jax.numpy as jnp
import numpy as np
import snippets

import hvd.jax as hvd

hvd.init()


def loss_fn(weights, x, y):
    return ((x @ weights - y) ** 2).mean()


def check_the_manual():
    try:
        import optax
    except ImportError as missing:
        raise SkipTest(str(missing)) from None
    x = jnp.ones((4, 3)) * (hvd.rank() + 1)
    params = jnp.full(3, float(hvd.rank()))
    after = snippets.run(
        "man/hvd-jax.7", "optax.adam", {"params": params, "x": x, "y": x[:, 0], "loss_fn": loss_fn, "optax": optax}
    )
    assert after["params"].tolist() == [0.0] * 3 and after["gradients"].shape == (3,)


def check_the_same_batch():
    names = snippets.regression(np)
    names |= {name: jnp.asarray(names[name]) for name in ("x", "y", "weights")}
    snippets.same_batch(hvd, names | {"loss_and_gradients": jax.jit(jax.value_and_grad(loss_fn))})
