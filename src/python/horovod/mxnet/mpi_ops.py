"""horovod.mxnet.mpi_ops: the operations.  Re-exports only."""

from hvd._common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._common_names import _names as _shared
from hvd.mxnet.ops import *  # noqa: F403 -- the operations that it lists
from hvd.mxnet.ops import __all__ as _operations

__all__ = [*_shared, *_operations]
