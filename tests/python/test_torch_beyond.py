"""What hvd.torch has beyond Horovod, on two and three ranks."""

from python.harness import checks_of

test_two_ranks = checks_of("torch_beyond.py", ranks=2, needs=("torch",))
test_three_ranks = checks_of("torch_beyond.py", ranks=3, needs=("torch",))
