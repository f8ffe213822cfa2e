"""horovod.tensorflow.functions: hvd.tensorflow.functions."""

from hvd.tensorflow.functions import allgather_object, broadcast_object, broadcast_object_fn, broadcast_variables

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]
