"""horovod.mxnet on two ranks."""

import pytest

from python.harness import checks_of, mxnet_interpreter

QUIET = {"MXNET_ENGINE_TYPE": "ThreadedEnginePerDevice", "MXNET_CPU_WORKER_NTHREADS": "2"}

test_operations_and_training = checks_of("mxnet_training.py", needs=("mxnet",), interpreter=mxnet_interpreter(), **QUIET)
test_scripts = pytest.mark.ci(
    checks_of("mxnet_scripts.py", needs=("mxnet", "sklearn"), interpreter=mxnet_interpreter(), **QUIET)
)
