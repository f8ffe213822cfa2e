"""Databricks' name: sparkdl.horovod.tensorflow."""
