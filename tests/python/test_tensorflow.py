"""horovod.tensorflow on two ranks: the operations, then training."""

import pytest

from python.harness import checks_of, tensorflow

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}

FILES = (
    "tensorflow_operations.py",
    "tensorflow_derivatives.py",
    "tensorflow_batch_norm.py",
    "tensorflow_training.py",
    "snippets_tensorflow.py",
)
test_two_ranks = checks_of(*FILES, needs=("tensorflow",), interpreter=tensorflow(), **QUIET)
test_examples = pytest.mark.ci(
    checks_of("tensorflow_examples.py", needs=("tensorflow", "sklearn"), interpreter=tensorflow(), **QUIET)
)
test_compiled_by_xla = checks_of(
    "tensorflow_xla.py", needs=("tensorflow",), interpreter=tensorflow(), HOROVOD_ENABLE_XLA_OPS="1", **QUIET
)
