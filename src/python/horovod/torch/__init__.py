"""horovod.torch: hvd.torch.  Re-exports only."""

from typing import TYPE_CHECKING, Any

import hvd.torch as _package
from horovod.common.util import check_extension as check_extension
from horovod.torch import compression, functions, mpi_ops, optimizer, sync_batch_norm
from hvd.torch import __all__ as _names

if TYPE_CHECKING:
    from hvd.torch import *  # noqa: F403 -- what __all__ lists there

__all__ = [*_names, "compression", "functions", "mpi_ops", "optimizer", "sync_batch_norm"]


def __getattr__(name: str) -> Any:
    value = getattr(_package, name)  # on first use, because some names load further modules
    if name in _names:
        globals()[name] = value
    return value
