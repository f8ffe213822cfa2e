"""horovod.torch.optimizer: hvd.torch.optimizer."""

from hvd.torch.optimizer import (
    DistributedOptimizer,
)

__all__ = [
    "DistributedOptimizer",
]
