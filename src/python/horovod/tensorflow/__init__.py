"""horovod.tensorflow: hvd.tensorflow.  Re-exports only."""

from typing import TYPE_CHECKING, Any

import hvd.tensorflow as _package
from horovod.common.util import check_extension as check_extension
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import split_list as split_list
from horovod.tensorflow import mpi_ops as mpi_ops
from horovod.tensorflow import util as util
from horovod.tensorflow.mpi_ops import check_num_rank_power_of_2 as check_num_rank_power_of_2
from horovod.tensorflow.mpi_ops import handle_average_backwards_compatibility as handle_average_backwards_compatibility
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly
from horovod.tensorflow.util import refs_to_vars as refs_to_vars
from horovod.tensorflow.util import vars_to_refs as vars_to_refs
from hvd.tensorflow import __all__ as __all__
from hvd.tensorflow.optimizer import _GraphOptimizer as _DistributedOptimizer  # noqa: F401 -- libraries look for it

if TYPE_CHECKING:
    from hvd.tensorflow import *  # noqa: F403 -- what __all__ lists there


def __getattr__(name: str) -> Any:
    value = getattr(_package, name)  # on first use: SyncBatchNormalization loads Keras
    if name in __all__:
        globals()[name] = value
    return value
