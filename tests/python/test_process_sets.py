"""Process sets and join on three and on four ranks, which make one node or several."""

import pytest

from python.harness import checks_of, tensorflow

FILE = "process_sets.py"
# TensorFlow's interpreter also has mpi4py.
test_three_ranks = checks_of(FILE, ranks=3, needs=("numpy",), interpreter=tensorflow())
test_two_nodes = pytest.mark.ci(checks_of(FILE, ranks=4, needs=("numpy",), HVD_RANKS_PER_NODE="2"))
test_four_ranks = pytest.mark.nightly(checks_of(FILE, ranks=4, needs=("numpy",)))
test_three_nodes = pytest.mark.nightly(checks_of(FILE, ranks=3, needs=("numpy",), HVD_RANKS_PER_NODE="1"))
