"""horovod.torch.optimizer: hvd.torch.optimizer."""

from hvd.torch.optimizer import DistributedOptimizer
from hvd.torch.optimizer import _Distributed as _DistributedOptimizer  # libraries annotate and look for it by this name

__all__ = ["DistributedOptimizer", "_DistributedOptimizer"]
