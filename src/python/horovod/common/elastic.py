"""horovod.common.elastic: hvd.elastic."""

from hvd.elastic import HostUpdateResult as HostUpdateResult
from hvd.elastic import ObjectState as ObjectState
from hvd.elastic import State as State
from hvd.elastic import run_fn as run_fn
from hvd.exceptions import HorovodInternalError as HorovodInternalError
from hvd.exceptions import HostsUpdatedInterrupt as HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HostUpdateResult", "HostsUpdatedInterrupt", "ObjectState", "State", "run_fn"]
