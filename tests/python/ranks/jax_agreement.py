"""hvd.agreement.compare with JAX's arrays; see agreement_checks.py."""

import os

import jax
import jax.numpy as jnp
from agreement_checks import RANK, STEPS, error_of, flip_in, found_so_far, fresh_name, names
from refusals import raises

import hvd.jax as hvd


def model():
    keys = jax.random.split(jax.random.key(3), 3)
    return {
        "dense": [{"w": jax.random.normal(keys[0], (50, 40)), "b": jnp.zeros(40)}],
        "half": jax.random.normal(keys[1], (300,), jnp.bfloat16),
        "key": jax.random.key(RANK),  # keys may differ
        "count": 5,
    }


@jax.jit
def _step(params, x):
    def loss(dense):
        return jnp.mean((x @ dense[0]["w"] + dense[0]["b"]) ** 2)

    grads = jax.grad(loss)(params["dense"])
    dense = jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params["dense"], grads)
    return {**params, "dense": dense, "half": params["half"] * 0.5}


def train(params, steps, name):
    for _ in range(steps):
        params = _step(params, jnp.ones((4, 50)))
        hvd.agreement.compare(params, name=name)
    return params


def check_equal_ranks_are_not_reported():
    train(model(), 10 * STEPS, fresh_name())
    assert found_so_far() == 0


def check_flips_are_found_where_they_are():
    for culprit, (name, of) in enumerate(
        {
            "dense.0.w": lambda p: p["dense"][0]["w"],
            "half": lambda p: p["half"],
            "dense.0.b": lambda p: p["dense"][0]["b"],
        }.items()
    ):
        name_of = fresh_name()
        params = train(model(), 3, name_of)
        if culprit == RANK:
            flip_in(jax.block_until_ready(of(params)), 33)
        names(error_of(lambda p=params, n=name_of: hvd.agreement.compare(p, name=n)), name, culprit)


def check_the_comparison_leaves_memory_to_the_next_step():
    """A step with donated arguments writes into the memory of the arrays that were compared."""
    name = fresh_name()
    step = jax.jit(lambda p: p + 1, donate_argnums=0)
    params = step(jnp.ones(1 << 16))
    before = params.unsafe_buffer_pointer()
    for _ in range(3):
        hvd.agreement.compare({"params": params}, name=name)
        params = step(params)
        assert params.unsafe_buffer_pointer() == before


def check_without_overwriting_repair_stops():
    os.environ["HVD_AGREEMENT"] = "repair"
    try:
        params, name = model(), fresh_name()
        if RANK == 1:
            params["half"] = params["half"] + 1
        names(error_of(lambda: hvd.agreement.compare(params, name=name)), "half", 1)
    finally:
        os.environ["HVD_AGREEMENT"] = "stop"


def check_inside_jit():
    def compared(x):
        hvd.agreement.compare({"x": x}, name="inside")
        return x

    raises(TypeError, lambda: jax.jit(compared)(jnp.ones(3)), "outside jit")
