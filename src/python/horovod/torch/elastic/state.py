"""horovod.torch.elastic.state."""

from hvd.elastic import ObjectState as ObjectState
from hvd.torch._elastic.state_handlers import LRSchedulerStateHandler as LRSchedulerStateHandler
from hvd.torch._elastic.state_handlers import ModelStateHandler as ModelStateHandler
from hvd.torch._elastic.state_handlers import OptimizerStateHandler as OptimizerStateHandler
from hvd.torch._elastic.state_handlers import SamplerStateHandler as SamplerStateHandler
from hvd.torch._elastic.state_handlers import StateHandler as StateHandler
from hvd.torch._elastic.state_handlers import get_handler_registry as get_handler_registry
from hvd.torch._elastic.state_handlers import set_handler_registry as set_handler_registry
from hvd.torch.elastic import TorchState as TorchState

__all__ = [
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]
