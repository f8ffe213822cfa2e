"""The JAX job of slowness.py: a compiled step whose gradients are averaged, with one cause of slowness planted in it.

planted_jax_job.py CAUSE RANK STEPS; RANK -1: all ranks have it.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from planted_cause import BATCH, STEPS, planted

import hvd.jax as hvd
from hvd.data import watched


def batches() -> Iterator[Any]:
    """Synthetic rows, slowly made for that cause."""
    while True:
        if planted("input sleeps"):
            time.sleep(0.02)
        yield jnp.ones((BATCH, 256))


def loss(params: Any, x: Any) -> jax.Array:
    return jnp.mean((jnp.tanh(x @ params["first"]) @ params["second"]) ** 2)


def one_step(params: Any, x: Any) -> Any:
    gradients = hvd.allreduce_gradients(jax.grad(loss)(params, x))
    return jax.tree.map(lambda value, gradient: value - 0.001 * gradient, params, gradients)


def some_work(x: Any) -> Any:
    """Computes for some milliseconds."""
    return jax.lax.fori_loop(0, 30, lambda _, y: jnp.clip(y @ y, 0, 1), x)


step: Any = jax.jit(one_step)
work: Any = jax.jit(some_work)


def main() -> None:
    """See the file's comment."""
    hvd.init()
    params = hvd.broadcast_parameters({"first": jnp.ones((256, 640)), "second": jnp.ones((640, 640))}, root_rank=0)
    square = jnp.ones((256, 256))
    with tempfile.TemporaryDirectory() as folder:
        for number, batch in zip(range(STEPS), watched(batches())):
            for _ in range(4 if planted("twice the work") else 1):
                work(square).block_until_ready()
            if planted("pause"):
                time.sleep(0.015)
            if planted("other shapes now and then") and number % 8 == 0:
                work(jnp.ones((20 + number, 20 + number))).block_until_ready()
            if planted("np.save") and number % 20 == 0:
                numpy.save(pathlib.Path(folder) / "state.npy", numpy.ones(20_000_000, "f4"))
            params = step(params, batch)
            jax.block_until_ready(params)
    hvd.shutdown()


main()
