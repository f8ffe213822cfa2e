"""Horovod's name: horovod.spark.common."""
