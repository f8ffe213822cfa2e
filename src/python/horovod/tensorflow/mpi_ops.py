"""horovod.tensorflow.mpi_ops: the operations on TensorFlow tensors."""

from horovod.common.basics import HorovodBasics
from horovod.common.util import check_installed_version as check_installed_version
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from hvd._world import *  # noqa: F403 -- the queries that it lists
from hvd._world import __all__ as _queries
from hvd.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from hvd.tensorflow.ops import *  # noqa: F403 -- the operations that it lists
from hvd.tensorflow.ops import __all__ as _operations

_basics = HorovodBasics()
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)

__all__ = [
    *_queries,
    *_operations,
    "ProcessSet",
    "add_process_set",
    "check_num_rank_power_of_2",
    "global_process_set",
    "remove_process_set",
]
