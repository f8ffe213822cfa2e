"""horovod.keras: hvd.keras.  Re-exports only."""

from hvd.keras import *  # noqa: F403 -- what __all__ lists there
from hvd.keras import __all__ as __all__
