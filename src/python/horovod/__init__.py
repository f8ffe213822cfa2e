"""Horovod's name for hvd: ``import horovod.torch as hvd`` works unchanged.  Re-exports only."""

from hvd._run import run as run

__all__ = ["run"]
# Scripts compare it: this is the Horovod whose names are provided, not our version (hvd.__version__).
__version__ = "0.28.1"
