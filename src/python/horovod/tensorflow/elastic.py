"""horovod.tensorflow.elastic: hvd.tensorflow.elastic."""

from hvd.tensorflow.elastic import TensorFlowKerasState as TensorFlowKerasState
from hvd.tensorflow.elastic import TensorFlowState as TensorFlowState
from hvd.tensorflow.elastic import run as run

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
