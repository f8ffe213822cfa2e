"""horovod.tensorflow.mpi_ops: the operations on TensorFlow tensors."""

from horovod.common.basics import HorovodBasics
from horovod.common.util import check_installed_version as check_installed_version
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from hvd._shared import *  # noqa: F403 -- what every framework's package offers
from hvd._shared import _names as _shared
from hvd.tensorflow.ops import *  # noqa: F403 -- the operations that it lists
from hvd.tensorflow.ops import __all__ as _operations

_basics = HorovodBasics()
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)

__all__ = [*_shared, *_operations, "check_num_rank_power_of_2"]
