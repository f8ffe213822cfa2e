"""horovod.runner: hvd.run."""

from hvd._job.run import run as run

__all__ = ["run"]
