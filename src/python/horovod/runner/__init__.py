"""horovod.runner: hvd.run."""

from hvd._run import run as run

__all__ = ["run"]
