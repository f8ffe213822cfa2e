"""horovod.torch.mpi_ops: the operations on torch tensors."""

from horovod.common.basics import HorovodBasics
from horovod.common.util import check_installed_version as check_installed_version
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import num_rank_is_power_2 as num_rank_is_power_2
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd.torch.compression import Compression as Compression
from hvd.torch.ops import *  # noqa: F403 -- the operations that it lists
from hvd.torch.ops import __all__ as _operations

_basics = HorovodBasics()
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)

__all__ = [*_shared, *_operations]
