"""Horovod's name: horovod.ray.ray_logger."""

import sys

from hvd.ray import ray_logger

sys.modules[__name__] = ray_logger  # one module, because it has state
