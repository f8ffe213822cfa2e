"""Process sets and join on three and on four ranks, which make one node or several."""

from python.harness import checks_of

test_three_ranks = checks_of("process_sets.py", ranks=3, needs=("numpy",))
test_four_ranks = checks_of("process_sets.py", ranks=4, needs=("numpy",))
test_three_nodes = checks_of("process_sets.py", ranks=3, needs=("numpy",), HVD_RANKS_PER_NODE="1")
test_two_nodes = checks_of("process_sets.py", ranks=4, needs=("numpy",), HVD_RANKS_PER_NODE="2")
