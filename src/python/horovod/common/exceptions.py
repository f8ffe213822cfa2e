"""horovod.common.exceptions: hvd.exceptions."""

from hvd.exceptions import HorovodInternalError as HorovodInternalError
from hvd.exceptions import HorovodVersionMismatchError as HorovodVersionMismatchError
from hvd.exceptions import HostsUpdatedInterrupt as HostsUpdatedInterrupt
from hvd.exceptions import get_version_mismatch_message as get_version_mismatch_message

__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt", "get_version_mismatch_message"]
