"""horovod.spark.lightning is not there: says so, and what to do instead."""

raise ImportError(
    "horovod.spark.lightning is not there in hvdrun: train a plain module with horovod.spark.torch.TorchEstimator, or call "
    'horovod.spark.run(fn) with a Trainer(strategy="horovod") of PyTorch Lightning before 2.0 in fn',
    name=__name__,
)
