"""horovod.tensorflow.keras: hvd.keras.  Re-exports only."""

from horovod.common.util import is_version_greater_equal_than as is_version_greater_equal_than
from hvd.keras import *  # noqa: F403 -- what __all__ lists there
from hvd.keras import __all__ as __all__
