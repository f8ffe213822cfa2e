"""The ranks' program of test_on_gpu.py on a real GPU: hvd.jax inside compiled programs, against NumPy."""

import os

import jax
import jax.numpy as jnp
import numpy as np

import hvd.jax as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
gpu = jax.devices("gpu")[hvd.local_rank() % len(jax.devices("gpu"))]


@jax.jit
def step(x: jax.Array) -> tuple[jax.Array, ...]:
    made = jnp.tanh(x @ x.T)  # work on the program's stream before and after
    total, highest = hvd.grouped_allreduce([made, made[0]], op=hvd.Sum)
    return total * 2, highest, hvd.allgather(made[:2]), hvd.reducescatter(made, op=hvd.Sum), hvd.broadcast(made, size - 1)


def made(r: int) -> np.ndarray:
    x = np.arange(4 * size * 3, dtype=np.float32).reshape(4 * size, 3) / 50 + r / 10
    return np.tanh(x @ x.T)


all_ranks = [made(r) for r in range(size)]
together = np.sum(all_ranks, 0)
expected = (
    together * 2,
    together[0],
    np.concatenate([m[:2] for m in all_ranks]),
    together[4 * rank : 4 * rank + 4],
    all_ranks[-1],
)
x = np.arange(4 * size * 3, dtype=np.float32).reshape(4 * size, 3) / 50 + rank / 10
with jax.default_matmul_precision("highest"):
    for _ in range(5):
        outs = step(jax.device_put(x, gpu))
        for out, wanted in zip(outs, expected):
            assert out.devices() == {gpu}
            np.testing.assert_allclose(np.asarray(out), wanted, rtol=1e-4)
if rank == 0:
    os.write(1, b"PASSED jax\n")
