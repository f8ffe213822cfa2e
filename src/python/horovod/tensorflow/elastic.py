"""horovod.tensorflow.elastic: hvd.tensorflow.elastic."""

from hvd.elastic import ObjectState as ObjectState
from hvd.elastic import run_fn as run_fn
from hvd.tensorflow.elastic import TensorFlowKerasState as TensorFlowKerasState
from hvd.tensorflow.elastic import TensorFlowState as TensorFlowState
from hvd.tensorflow.elastic import run as run

__all__ = ["ObjectState", "TensorFlowKerasState", "TensorFlowState", "run", "run_fn"]
