"""horovod.keras on two ranks, on each backend of Keras 3; and on Keras 2: tf_keras, and what came with TensorFlow up to 2.15.

For Keras 2: HVD_TENSORFLOW=tensorflow-cpu==2.13.1 scripts/setup --tests, with numpy below 1.25.
"""

import pytest

from python.harness import checks_of, tensorflow

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}


def _on(backend: str, module: str, **env: str):
    needs = ("keras", module)
    scripts = ("keras_training.py", "snippets_keras.py")
    return checks_of(*scripts, needs=needs, interpreter=tensorflow(), KERAS_BACKEND=backend, **QUIET, **env)


test_on_tensorflow = _on("tensorflow", "tensorflow")
test_on_torch = pytest.mark.ci(_on("torch", "torch", TF_USE_LEGACY_KERAS="1"))  # it concerns only TensorFlow
test_on_jax = pytest.mark.ci(_on("jax", "jax"))

# tensorflow_estimator: what TensorFlow needed as long as its Keras was 2
NEEDS_KERAS_2 = ("tensorflow_estimator",)
test_on_keras_2 = pytest.mark.ci(checks_of("keras2_training.py", needs=NEEDS_KERAS_2, interpreter=tensorflow(), **QUIET))
test_on_legacy_keras = pytest.mark.ci(
    checks_of(
        "keras2_training.py", needs=("tensorflow", "tf_keras"), interpreter=tensorflow(), TF_USE_LEGACY_KERAS="1", **QUIET
    )
)
