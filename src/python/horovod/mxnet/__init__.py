"""horovod.mxnet: hvd.mxnet.  Re-exports only."""

from horovod.common.util import check_extension as check_extension
from horovod.common.util import split_list as split_list
from horovod.mxnet import compression as compression
from horovod.mxnet import functions as functions
from horovod.mxnet import mpi_ops as mpi_ops
from hvd.mxnet import *  # noqa: F403 -- what __all__ lists there
from hvd.mxnet import __all__ as __all__
