"""An elastic job of TensorFlow that begins with one rank."""

from __future__ import annotations

import pathlib

import pytest

from python.harness import environment, has, tensorflow
from support import hvdrun

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


@pytest.mark.parametrize("way", WAYS)
def test_a_function_that_was_traced_alone_reduces_when_others_come(way: str, tmp_path: pathlib.Path) -> None:
    python = tensorflow()
    if not has("tensorflow", interpreter=python):
        pytest.skip(f"{python} has no tensorflow")
    (tmp_path / "train.py").write_text(TRAIN.format(**WAYS[way]))
    discover = tmp_path / "discover"
    discover.write_text(f"#!/bin/sh\ntest -e {tmp_path}/begun && echo localhost:2 || echo localhost:1\n")
    discover.chmod(0o755)
    options = ["-np", "1", "--min-np", "1", "--max-np", "2", "--host-discovery-script", str(discover), "--python", python]
    env = environment(TF_CPP_MIN_LOG_LEVEL="2", CUDA_VISIBLE_DEVICES="-1")
    done = hvdrun.run(*options, "train.py", cwd=tmp_path, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("steps: [1.0, 1.5] 2") == 2, done.stdout  # alone; the average of two
