"""horovod.torch.elastic.state."""

from hvd.torch.elastic import TorchState as TorchState

__all__ = ["TorchState"]
