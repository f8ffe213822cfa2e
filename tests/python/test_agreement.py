"""--agreement for parameters of NumPy, JAX, TensorFlow, Keras and MXNet; torch's are in test_torch.py."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from python.harness import checks_of, jax_interpreter, mxnet_interpreter, tensorflow

STOP = {"HVD_AGREEMENT": "stop", "HVD_AGREEMENT_STEPS": "4"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0", "JAX_PLATFORMS": "cpu"}


def on_three(file: str, module: str, interpreter: str | None, **env: str) -> Callable[..., Any]:
    return checks_of(file, ranks=3, needs=(module,), interpreter=interpreter, **STOP, **QUIET, **env)


test_numpy = on_three("numpy_agreement.py", "numpy", None)
test_jax = pytest.mark.ci(on_three("jax_agreement.py", "jax", jax_interpreter()))
test_tensorflow = pytest.mark.ci(on_three("tensorflow_agreement.py", "tensorflow", tensorflow()))
test_mxnet = pytest.mark.ci(on_three("mxnet_agreement.py", "mxnet", mxnet_interpreter()))
test_keras_on_tensorflow = on_three("keras_agreement.py", "keras", tensorflow(), KERAS_BACKEND="tensorflow")
test_keras_on_jax = pytest.mark.ci(on_three("keras_agreement.py", "keras", tensorflow(), KERAS_BACKEND="jax"))
test_keras_on_torch = pytest.mark.ci(on_three("keras_agreement.py", "keras", tensorflow(), KERAS_BACKEND="torch"))
