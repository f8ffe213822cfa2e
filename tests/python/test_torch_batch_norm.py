"""SyncBatchNorm in torch, on two and on three ranks."""

from python.harness import checks_of

test_two_ranks = checks_of("torch_batch_norm.py", ranks=2, needs=("torch",))
test_three_ranks = checks_of("torch_batch_norm.py", ranks=3, needs=("torch",))
