"""horovod.torch.elastic.state."""

from hvd.elastic import ObjectState as ObjectState
from hvd.torch.elastic import TorchState as TorchState

__all__ = ["ObjectState", "TorchState"]
