"""Horovod's name: horovod.spark.lightning.datamodule.  Its modules are missing here; an error says so."""

from horovod.spark.common.datamodule import _absent_modules

__getattr__ = _absent_modules(__name__)
