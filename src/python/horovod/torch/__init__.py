"""horovod.torch: hvd.torch.  Re-exports only."""

from horovod.common.util import check_extension as check_extension
from horovod.torch import compression, functions, mpi_ops, optimizer, sync_batch_norm
from hvd.torch import *  # noqa: F403 -- what __all__ lists there
from hvd.torch import __all__ as _names

__all__ = [*_names, "compression", "functions", "mpi_ops", "optimizer", "sync_batch_norm"]
