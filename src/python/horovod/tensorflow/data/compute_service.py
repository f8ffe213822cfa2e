"""horovod.tensorflow.data.compute_service: hvd.tensorflow.data_service."""

from hvd.tensorflow.data_service import TfDataServiceConfig as TfDataServiceConfig
from hvd.tensorflow.data_service import compute_worker_fn as compute_worker_fn
from hvd.tensorflow.data_service import send_to_data_service as send_to_data_service
from hvd.tensorflow.data_service import tf_data_service as tf_data_service

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]
