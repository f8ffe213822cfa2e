"""horovod.tensorflow: hvd.tensorflow.  Re-exports only."""

from typing import TYPE_CHECKING, Any

import hvd.tensorflow as _package
from hvd.tensorflow import __all__ as __all__

if TYPE_CHECKING:
    from hvd.tensorflow import *  # noqa: F403 -- what __all__ lists there


def __getattr__(name: str) -> Any:
    value = getattr(_package, name)  # when it is used: SyncBatchNormalization loads Keras
    if name in __all__:
        globals()[name] = value
    return value
