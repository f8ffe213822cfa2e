"""horovod.mxnet.mpi_ops: the operations.  Re-exports only."""

from horovod.common import util as _util
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd.mxnet.ops import *  # noqa: F403 -- the operations that it lists
from hvd.mxnet.ops import __all__ as _operations

handle_average_backwards_compatibility = _util.get_average_backwards_compatibility_fun(None)

__all__ = [*_shared, *_operations]
