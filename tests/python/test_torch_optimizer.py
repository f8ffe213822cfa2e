"""DistributedOptimizer on two and three ranks."""

from python.harness import checks_of

FILES = ("torch_optimizer.py", "torch_optimizer_state.py", "torch_registered.py", "torch_scaling.py", "torch_training.py")
test_two_ranks = checks_of(*FILES, ranks=2, needs=("torch",))
test_three_ranks = checks_of(*FILES[:-1], ranks=3, needs=("torch",))
