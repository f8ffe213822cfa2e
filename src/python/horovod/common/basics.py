"""horovod.common.basics: where this rank stands."""

from __future__ import annotations

from typing import Any

from hvd import process_sets as _sets
from hvd._world import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)

__all__ = [
    "HorovodBasics",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


class HorovodBasics:
    """What frameworks' packages of Horovod are made of; its methods are this module's functions."""

    Average, Sum, Adasum, Min, Max, Product = range(6)

    def __init__(self, *_: str) -> None:
        """Horovod's takes the path of its compiled library, which is not needed here."""

    def __getattr__(self, name: str) -> Any:
        if name in __all__:
            return globals()[name]
        raise AttributeError(f"HorovodBasics has no attribute {name!r}")

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        # Horovod's tests look at the numbers.
        return {0: list(range(size())), **_sets.ranks_by_id()}
