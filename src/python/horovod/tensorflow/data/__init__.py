"""Names that scripts import from horovod.tensorflow.data."""
