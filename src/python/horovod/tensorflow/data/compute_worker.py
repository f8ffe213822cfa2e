"""python -m horovod.tensorflow.data.compute_worker: hvd.tensorflow.compute_worker."""

from hvd.tensorflow.compute_worker import main as main
from hvd.tensorflow.compute_worker import run as _run

__all__ = ["main"]

if __name__ == "__main__":
    _run()
