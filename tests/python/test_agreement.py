"""--agreement for parameters of NumPy, JAX, TensorFlow, Keras and MXNet; torch's are in test_torch.py."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Callable

import pytest

from python.harness import checks_of, has, jax_interpreter, mxnet_interpreter, tensorflow
from support import hvdrun

STOP = {"HVD_AGREEMENT": "stop", "HVD_AGREEMENT_STEPS": "4"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0", "JAX_PLATFORMS": "cpu"}


def on_three(file: str, module: str, interpreter: str | None, **env: str) -> Callable[..., Any]:
    return checks_of(file, ranks=3, needs=(module,), interpreter=interpreter, **STOP, **QUIET, **env)


test_numpy = on_three("numpy_agreement.py", "numpy", None)
test_jax = pytest.mark.ci(on_three("jax_agreement.py", "jax", jax_interpreter()))
test_tensorflow = pytest.mark.ci(on_three("tensorflow_agreement.py", "tensorflow", tensorflow()))
test_mxnet = pytest.mark.ci(on_three("mxnet_agreement.py", "mxnet", mxnet_interpreter()))
test_keras_on_tensorflow = on_three("keras_agreement.py", "keras", tensorflow(), KERAS_BACKEND="tensorflow")
test_keras_on_jax = pytest.mark.nightly(on_three("keras_agreement.py", "keras", tensorflow(), KERAS_BACKEND="jax"))
test_keras_on_torch = pytest.mark.nightly(on_three("keras_agreement.py", "keras", tensorflow(), KERAS_BACKEND="torch"))
test_keras_2 = pytest.mark.ci(on_three("keras2_agreement.py", "tf_keras", tensorflow(), TF_USE_LEGACY_KERAS="1"))

# Rank 1 changes one weight by itself, once.
DRIFTS = """
import numpy as np
import keras
import hvd.keras as hvd
hvd.init()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
state, drifted = hvd.elastic.KerasState(model, batch=0, epoch=0), []
x = np.random.default_rng(hvd.rank()).normal(size=(240, 6)).astype("float32")

class Drifts(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 14 and hvd.rank() == 1 and not drifted:
            drifted.append(True)
            kernel = np.array(keras.ops.convert_to_numpy(model.layers[0].kernel))
            kernel[2, 1] += 1
            model.layers[0].kernel.assign(kernel)

@hvd.elastic.run
def train(state):
    callbacks = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, 10)]
    model.fit(x, x[:, :3], batch_size=8, epochs=1, shuffle=False, verbose=0, callbacks=[Drifts(), *callbacks])
    print("sum", float(keras.ops.convert_to_numpy(model.layers[0].kernel).sum()), flush=True)

train(state)
"""


@pytest.mark.ci
def test_an_elastic_job_of_keras_goes_on_from_the_commit(tmp_path: pathlib.Path) -> None:
    interpreter = tensorflow()
    if not has("keras", "tensorflow", interpreter=interpreter):
        pytest.skip(f"{interpreter} has no keras with tensorflow")
    script = tmp_path / "drifts.py"
    script.write_text(DRIFTS)
    options = ["-np", "2", "--min-np", "2", "--agreement", "stop", "--agreement-steps", "4", "--python", interpreter]
    done = hvdrun.run(*options, str(script), env={**QUIET, "KERAS_BACKEND": "tensorflow"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"agreement: (?:parameter|optimizer state) \S+, elements ", done.stderr)) == 1, done.stderr
    sums = [line.partition("sum ")[2] for line in done.stdout.splitlines() if "sum " in line]
    assert len(sums) == 2 and sums[0] == sums[1], done.stdout
