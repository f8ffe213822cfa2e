"""DistributedOptimizer(op=Adasum) in torch, on two ranks."""

from python.harness import checks_of

test_two_ranks = checks_of("torch_adasum_optimizer.py", ranks=2, needs=("torch",))
