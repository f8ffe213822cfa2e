"""Names that scripts import from horovod.spark.tensorflow."""
