"""python -m horovod.spark.tensorflow.compute_worker: hvd.spark._compute_worker."""

from hvd.spark._compute_worker import run as _run

__all__: list[str] = []

if __name__ == "__main__":
    _run()
