"""horovod.tensorflow.mpi_ops: the operations on TensorFlow tensors."""

from __future__ import annotations

from typing import Any

from horovod.common.basics import HorovodBasics
from horovod.common.util import check_installed_version as check_installed_version
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from hvd._native import Sum as Sum
from hvd._runtime.common_names import *  # noqa: F403 -- what every framework's package offers
from hvd._runtime.common_names import _names as _shared
from hvd.process_sets import ProcessSet as ProcessSet
from hvd.process_sets import global_process_set as global_process_set
from hvd.tensorflow.ops import *  # noqa: F403 -- the operations that it lists
from hvd.tensorflow.ops import __all__ as _operations
from hvd.tensorflow.ops import allreduce as allreduce

_basics = HorovodBasics()
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An allreduce for research code; the default op is the sum."""
    return allreduce(
        tensor, op=op, prescale_factor=prescale_factor, postscale_factor=postscale_factor, name=name, process_set=process_set
    )


__all__ = [*_shared, *_operations, "check_num_rank_power_of_2"]
