"""What scripts for horovod.torch rely on besides its functions."""

from python.harness import checks_of

test_two_ranks = checks_of("torch_scripts.py", ranks=2, needs=("torch",))
