"""The records of steps with TensorFlow, Keras or JAX: input, waiting, checkpoints (hvd._job.step_hooks)."""

from __future__ import annotations

import json
import subprocess

import pytest

from python.harness import ROOT, environment, has, tensorflow
from support import hvdrun
from support.forms import few, measured

BEGIN = """
import json, sys, time
sys.path.insert(0, TESTS)
from support.steps import own_steps
import numpy as np

def rows(late):
    for _ in range(24):
        if late: time.sleep(0.03)
        yield np.ones((4, 8), "float32")

def show():
    print("steps", hvd.rank(), json.dumps([s._asdict() for s in own_steps()]), flush=True)
"""
KERAS = (
    BEGIN
    + """
import tempfile, keras
import hvd.keras as hvd
hvd.init()
late = hvd.rank() == 1
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(64), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse", **COMPILE)

class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        if late and SLOW: time.sleep(0.03)
        return np.ones((4, 8), "float32"), np.ones((4, 1), "float32")
"""
)
FIT = "model.fit(Rows(), epochs=1, verbose=0, shuffle=False)\nshow()\n"
SAVE = """
with tempfile.TemporaryDirectory() as folder:
    saves = [keras.callbacks.ModelCheckpoint(folder + "/model.keras", save_freq=1)] if late else []
    model.fit(Rows(), epochs=1, verbose=0, callbacks=saves)
show()
"""


def run(script: str, **env: str) -> dict[int, list[dict[str, int]]]:
    """The steps of each of two ranks, without the first, which compiles."""
    done = subprocess.run(
        [hvdrun.program(), "-np", "2", "--no-report", tensorflow(), "-c", script.replace("TESTS", repr(str(ROOT / "tests")))],
        capture_output=True,
        text=True,
        timeout=170,
        env=environment(TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0", **env),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line.split("steps ", 1)[1] for line in done.stdout.splitlines() if "steps " in line]
    return {int(rank): json.loads(steps)[1:] for rank, steps in (line.split(" ", 1) for line in shown)}


def a_step(steps: list[dict[str, int]], what: str) -> float:
    """The value for a middle step, in milliseconds."""
    values = sorted(s[what] for s in steps)
    return values[len(values) // 2] / 1e6


def needs(*modules: str) -> None:
    if not has(*modules, interpreter=tensorflow()):
        pytest.skip(f"{tensorflow()} lacks one of {', '.join(modules)}")


def rank_1_reads_slowly(steps: dict[int, list[dict[str, int]]], least: int = 15) -> None:
    assert len(steps[0]) >= least and len(steps[1]) >= least, steps
    assert a_step(steps[1], "input_ns") > 20, steps[1]
    assert a_step(steps[0], "input_ns") < a_step(steps[1], "input_ns") / 2, steps[0]
    assert a_step(steps[0], "waited_ns") > 10, steps[0]
    assert a_step(steps[1], "waited_ns") < a_step(steps[0], "waited_ns") / 2, steps[1]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", few(["tensorflow", "jax"]))
@measured
def test_a_late_batch_of_fit_is_input_and_the_other_rank_waits(backend: str) -> None:
    needs("keras", backend)
    rank_1_reads_slowly(run(KERAS.replace("COMPILE", "{}").replace("SLOW", "True") + FIT, KERAS_BACKEND=backend))


@pytest.mark.ci
@pytest.mark.timeout(400)
@measured
def test_several_steps_of_fit_in_one_graph() -> None:
    needs("keras", "tensorflow")
    steps = run(
        KERAS.replace("COMPILE", '{"steps_per_execution": 4}').replace("SLOW", "True") + FIT, KERAS_BACKEND="tensorflow"
    )
    assert len(steps[1]) >= 4
    assert a_step(steps[1], "input_ns") > 60, steps[1]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", few(["tensorflow", "jax"]))
def test_a_model_checkpoint_is_one(backend: str) -> None:
    needs("keras", backend)
    steps = run(KERAS.replace("COMPILE", "{}").replace("SLOW", "False") + SAVE, KERAS_BACKEND=backend)
    assert a_step(steps[1], "save_ns") > 1, steps[1]
    assert a_step(steps[0], "save_ns") == 0, steps[0]


TAPE = (
    BEGIN
    + """
import tensorflow as tf
import hvd.tensorflow as hvd
hvd.init()
batches = tf.data.Dataset.from_generator(lambda: rows(late=hvd.rank() == 1), output_signature=tf.TensorSpec((4, 8), tf.float32))
weights = tf.Variable(tf.ones((8, 1)))

@tf.function
def step(batch):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean(batch @ weights)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))

for batch in batches:
    step(batch)
show()
"""
)


@pytest.mark.ci
@pytest.mark.timeout(400)
@measured
def test_a_late_batch_of_tf_data_is_input() -> None:
    needs("tensorflow")
    rank_1_reads_slowly(run(TAPE))


PIPELINE = (
    BEGIN
    + """
import tensorflow as tf

def sleep(x):
    time.sleep(0.02)
    return x

def slow(x, y):
    return tf.ensure_shape(tf.numpy_function(sleep, [x], tf.float32), x.shape), y

pairs = tf.data.Dataset.from_tensors((tf.ones((4, 8)), tf.ones((4, 1)))).repeat(48).map(slow)
"""
)
FIT_PIPELINE = """
import keras
import hvd.keras as hvd
hvd.init()
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse", **COMPILE)
model.fit(pairs, validation_data=pairs.take(4), verbose=0)
show()
"""
LOOP_PIPELINE = """
import hvd.tensorflow as hvd
hvd.init()
for x, y in pairs:
    hvd.allreduce(x, name="x")
show()
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("script", "batches"),
    few(
        [
            (FIT_PIPELINE.replace("COMPILE", "{}"), 1),
            (FIT_PIPELINE.replace("COMPILE", '{"steps_per_execution": 4}'), 4),
            (LOOP_PIPELINE, 1),
        ]
    ),
    ids=["fit", "several steps", "loop"],
)
@measured
def test_tf_data_tells_how_long_it_makes_a_batch_on_the_last_rank_and_on_the_others(script: str, batches: int) -> None:
    needs("tensorflow", "keras")
    for steps in run(PIPELINE + script).values():
        assert 19 * batches < a_step(steps, "made_ns") < 80 * batches, steps  # a busy machine wakes sleepers late


WATCHED = (
    BEGIN
    + """
import hvd.numpy as hvd
from hvd import data
hvd.init()

class Loader(BASES):
    def __len__(self):
        return 24
    def _iterate(self):
        return rows(late=hvd.rank() == 1)

for batch in BATCHES:
    hvd.allreduce(batch, name="gradient")
show()
"""
)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("bases", "batches"),
    [
        ("data.BaseDataLoader", "Loader()"),
        ("data.AsyncDataLoaderMixin, data.BaseDataLoader", "Loader(async_loader_queue_size=2)"),
        ("data.BaseDataLoader", "data.watched(rows(late=hvd.rank() == 1))"),
    ],
    ids=["loader", "asynchronous", "watched"],
)
@measured
def test_late_batches_of_any_iterator_are_input(bases: str, batches: str) -> None:
    needs("numpy")
    rank_1_reads_slowly(run(WATCHED.replace("BASES", bases).replace("BATCHES", batches)))
