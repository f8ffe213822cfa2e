"""horovod.runner.common.util.timeout: hvd._compute.time_limit."""

from hvd._compute.time_limit import Timeout as Timeout
from hvd._compute.time_limit import TimeoutException as TimeoutException

__all__ = ["Timeout", "TimeoutException"]
