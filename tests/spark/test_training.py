"""The estimators' ranks without Spark: rows, steps, weights, callbacks, checkpoints."""

from __future__ import annotations

import pytest

from python.harness import checks_of, jax_interpreter, python, tensorflow

from . import session as s

PYTHON = s.python() or python()  # has pyarrow, and torch and Keras

test_rows = checks_of("estimator_rows.py", needs=("pyarrow", "pandas"), interpreter=PYTHON)
test_torch = checks_of("estimator_torch.py", needs=("pyarrow", "pandas", "torch"), interpreter=PYTHON)
NEEDS = ("pyarrow", "pandas", "keras")
test_keras = pytest.mark.nightly(
    checks_of("estimator_keras.py", needs=(*NEEDS, "torch"), interpreter=PYTHON, KERAS_BACKEND="torch")
)
test_keras_on_tensorflow = pytest.mark.nightly(
    checks_of("estimator_keras.py", needs=(*NEEDS, "tensorflow"), interpreter=tensorflow(), KERAS_BACKEND="tensorflow")
)
test_keras_2 = pytest.mark.nightly(
    checks_of("estimator_keras.py", needs=(*NEEDS, "tensorflow", "tf_keras"), interpreter=tensorflow(), TF_USE_LEGACY_KERAS="1")
)
test_keras_on_jax = pytest.mark.nightly(
    checks_of("estimator_keras.py", needs=(*NEEDS, "jax"), interpreter=jax_interpreter(), KERAS_BACKEND="jax")
)
