"""python -m horovod.spark.tensorflow.compute_worker: hvd._compute.spark_worker."""

from hvd._compute.spark_worker import run as _run

__all__: list[str] = []

if __name__ == "__main__":
    _run()
