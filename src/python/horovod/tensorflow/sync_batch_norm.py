"""horovod.tensorflow.sync_batch_norm: hvd.tensorflow.sync_batch_norm."""

from hvd.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
