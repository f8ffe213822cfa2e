"""Gradients of three precisions in one model: the gain of exchanging them together.

    hvdrun -np 2 examples/jax_mixed_precision.py

A model with bfloat16 weights, float16 adapters and float32 norms submits its gradients in mixed order. In one call, all ready
gradients travel in one batch, whatever their dtypes and order. The runtime looks ahead, past arrays of another dtype. bfloat16
and float16 are added in float32 and rounded once. The script times both ways and compares them with the sum in float32. Timings
say little on a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hvd.jax as hvd

DTYPES = (jnp.bfloat16, jnp.float32, jnp.float16)


def gradients(layers: int, seed: int) -> list[jax.Array]:
    """An array of each dtype for every layer: [64, 32], [64] and [32, 4]."""
    generator = np.random.default_rng(seed)
    shapes = ((64, 32), (64,), (32, 4))
    return [
        jnp.asarray(generator.normal(size=shape)).astype(dtype) for _ in range(layers) for shape, dtype in zip(shapes, DTYPES)
    ]


def timed(step: Callable[[list[jax.Array]], Any], arrays: list[jax.Array], rounds: int) -> tuple[list[jax.Array], float]:
    """The result, and milliseconds a step: the least of a few."""
    result = jax.block_until_ready(step(arrays))
    best = float("inf")
    for _ in range(rounds):
        hvd.barrier()
        start = time.perf_counter()
        jax.block_until_ready(step(arrays))
        best = min(best, time.perf_counter() - start)
    return result, best * 1e3


def main(layers: int = 50, rounds: int = 20) -> dict[str, float]:
    """Milliseconds for each way.  Raises AssertionError if a result is wrong."""
    hvd.init()
    mine = gradients(layers, hvd.rank())
    expected = [sum(np.asarray(g[i], np.float32) for g in (gradients(layers, r) for r in range(hvd.size()))) for i in range(6)]

    ways = {
        "one by one": jax.jit(lambda arrays: [hvd.allreduce(array, op=hvd.Sum) for array in arrays]),
        "together": jax.jit(lambda arrays: hvd.allreduce_gradients(arrays, op=hvd.Sum)),
        "together, outside jit": lambda arrays: hvd.allreduce_gradients(arrays, op=hvd.Sum),
    }
    took = {}
    for name, step in ways.items():
        out, took[name] = timed(step, mine, rounds)
        for array, total in zip(out, expected):
            step_of = float(jnp.finfo(array.dtype).eps)  # one rounding
            np.testing.assert_allclose(np.asarray(array, np.float32), total, rtol=step_of, atol=step_of)
    if hvd.rank() == 0:
        for name, milliseconds in took.items():
            print(f"{len(mine)} gradients of three dtypes {name}: {milliseconds:.2f} ms", flush=True)
        print(f"together is {took['one by one'] / took['together']:.1f} times as fast, {hvd.size()} ranks", flush=True)
    return took


if __name__ == "__main__":
    main()
