"""horovod.torch.sync_batch_norm: hvd.torch.sync_batch_norm."""

from hvd.torch.sync_batch_norm import (
    SyncBatchNorm,
)

__all__ = [
    "SyncBatchNorm",
]
