"""hvd.numpy: every operation, dtype and error, on two and on three ranks; and the C module below it."""

import pytest

from python.harness import checks_of

test_two_ranks = pytest.mark.ci(checks_of("numpy_operations.py", ranks=2, needs=("numpy",)))
test_three_ranks = checks_of("numpy_operations.py", ranks=3, needs=("numpy",))
test_global_batches = checks_of("global_batches.py", "snippets_numpy.py", ranks=3, needs=("numpy",))
test_native_calls = checks_of("native_calls.py", ranks=1, needs=("numpy",))
test_buffers = checks_of("numpy_buffers.py")
test_crossed_kinds = pytest.mark.ci(
    checks_of("numpy_crossed.py", ranks=3, needs=("numpy",), HOROVOD_STALL_CHECK_TIME_SECONDS="1")
)
