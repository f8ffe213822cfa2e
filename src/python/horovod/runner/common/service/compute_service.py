"""horovod.runner.common.service.compute_service: hvd._compute_service."""

from hvd._compute_service import ComputeClient as ComputeClient
from hvd._compute_service import ComputeService as ComputeService

__all__ = ["ComputeClient", "ComputeService"]
