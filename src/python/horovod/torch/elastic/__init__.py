"""horovod.torch.elastic: hvd.torch.elastic."""

from hvd._runtime.world import init as init
from hvd._runtime.world import shutdown as shutdown
from hvd.elastic import run_fn as run_fn
from hvd.torch.elastic import ElasticSampler as ElasticSampler
from hvd.torch.elastic import TorchState as TorchState
from hvd.torch.elastic import run as run

__all__ = ["ElasticSampler", "TorchState", "run", "run_fn"]
