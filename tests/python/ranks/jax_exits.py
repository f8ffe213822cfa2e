"""Ranks end while a compiled program still waits for an operation: no hang and no loss.  jax_exits.py HOW"""

import sys
import time

import jax
import jax.numpy as jnp

import hvd.jax as hvd

hvd.init()
step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
step(jnp.ones(5)).block_until_ready()
how = sys.argv[1]
if how == "raises" and hvd.rank() == 1:
    raise ValueError("as it should")
if how == "late" and hvd.rank() == 1:
    time.sleep(1)
step(jnp.ones(5))  # the result is never awaited
