"""Process sets on three and on four ranks."""

from python.harness import checks_of

test_three_ranks = checks_of("process_sets.py", ranks=3, needs=("numpy",))
test_four_ranks = checks_of("process_sets.py", ranks=4, needs=("numpy",))
