"""horovod.runner.common.service.compute_service: hvd._compute.service."""

from hvd._compute.service import ComputeClient as ComputeClient
from hvd._compute.service import ComputeService as ComputeService

__all__ = ["ComputeClient", "ComputeService"]
