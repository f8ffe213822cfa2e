"""The torch examples on two ranks."""

from python.harness import checks_of

test_two_ranks = checks_of("torch_examples.py", ranks=2, needs=("torch", "sklearn"))
