"""Elastic jobs that begin with one rank: functions that were traced, or compiled, alone."""

from __future__ import annotations

import pathlib

import pytest

from python.harness import environment, has, jax_interpreter, tensorflow
from support import hvdrun
from support.forms import few

TRAIN = """
import pathlib
import tensorflow as tf
import {keras} as hvd
import hvd.tensorflow as ops
from hvd.tensorflow.elastic import TensorFlowKerasState

hvd.init()
model = tf.keras.Sequential([tf.keras.Input([1]), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
optimizer = {optimizer}

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x))
    {apply}

state = TensorFlowKerasState(model, optimizer, steps=[])

@ops.elastic.run
def train(state):
    together = 0
    while together < 5:
        before = float(model.trainable_variables[0][0, 0])
        step(tf.constant([[1.0 + ops.rank()]]))
        state.steps = state.steps + [round(before - float(model.trainable_variables[0][0, 0]), 3)]
        together += ops.size() == 2
        pathlib.Path("begun").touch()
        state.commit()
    print("steps:", sorted(set(state.steps)), ops.size(), flush=True)

train(state)
"""
TAPE = """gradients = ops.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))"""
OPTIMIZER = "optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))"
WAYS = {
    "tape": {"keras": "hvd.tensorflow", "optimizer": "tf.optimizers.SGD(1.0)", "apply": TAPE},
    "optimizer": {
        "keras": "hvd.keras",
        "optimizer": "hvd.DistributedOptimizer(tf.optimizers.SGD(1.0))",
        "apply": OPTIMIZER,
    },
}


JAX = """
import pathlib
import jax
import jax.numpy as jnp
import hvd.jax as hvd
from hvd import elastic

hvd.init()
state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, steps=[])

@jax.jit
def step(x):
    return jnp.concatenate([hvd.allreduce(x, op=hvd.Sum), hvd.allgather(x)])

@elastic.run
def train(state):
    together = 0
    while together < 5:
        state.steps = state.steps + [step(jnp.full(1, 1.0 + hvd.rank())).tolist()]
        together += hvd.size() == 2
        pathlib.Path("begun").touch()
        state.commit()
    print("steps:", sorted(set(map(tuple, state.steps))), hvd.size(), flush=True)

train(state)
"""


def grow(script: str, python: str, folder: pathlib.Path) -> str:
    """The output of a job that has one rank until a file "begun" exists, and two afterwards."""
    (folder / "train.py").write_text(script)
    discover = folder / "discover"
    discover.write_text(f"#!/bin/sh\ntest -e {folder}/begun && echo localhost:2 || echo localhost:1\n")
    discover.chmod(0o755)
    options = ["-np", "1", "--min-np", "1", "--max-np", "2", "--host-discovery-script", str(discover), "--python", python]
    env = environment(TF_CPP_MIN_LOG_LEVEL="2", CUDA_VISIBLE_DEVICES="-1", JAX_PLATFORMS="cpu")
    done = hvdrun.run(*options, "train.py", cwd=folder, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("way", few(WAYS, 0))
def test_tensorflow(way: str, tmp_path: pathlib.Path) -> None:
    python = tensorflow()
    if not has("tensorflow", interpreter=python):
        pytest.skip(f"{python} has no tensorflow")
    out = grow(TRAIN.format(**WAYS[way]), python, tmp_path)
    assert out.count("steps: [1.0, 1.5] 2") == 2, out  # alone; the average of two


def test_jax(tmp_path: pathlib.Path) -> None:
    python = jax_interpreter()
    if not has("jax", interpreter=python):
        pytest.skip(f"{python} has no jax")
    out = grow(JAX, python, tmp_path)
    assert out.count("steps: [(1.0, 1.0), (3.0, 1.0, 2.0)] 2") == 2, out
