"""horovod.jax: hvd.jax, which Horovod lacks.  Re-exports only."""

from hvd.jax import *  # noqa: F403 -- what __all__ lists there
from hvd.jax import __all__ as __all__
