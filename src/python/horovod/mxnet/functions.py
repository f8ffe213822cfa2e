"""horovod.mxnet.functions.  Re-exports only."""

from hvd.mxnet.functions import allgather_object, broadcast_object

__all__ = ["allgather_object", "broadcast_object"]
