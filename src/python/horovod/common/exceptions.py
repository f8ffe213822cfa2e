"""horovod.common.exceptions: hvd.exceptions."""

from hvd.exceptions import HorovodInternalError as HorovodInternalError
from hvd.exceptions import HorovodVersionMismatchError as HorovodVersionMismatchError
from hvd.exceptions import HostsUpdatedInterrupt as HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt"]
