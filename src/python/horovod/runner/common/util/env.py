"""This process's place in a launch, without hvd.init()."""

from __future__ import annotations

from hvd._runtime import environment as _environment

__all__ = ["get_env_rank_and_size"]

# The launch's own names first, then those of mpirun and of Slurm's PMI.
_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("HVD_RANK", "HVD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """(rank, size) from the launcher's environment; (0, 1) without one.  RuntimeError if only one of them is set."""
    for names in _PAIRS:
        values = [_environment.whole.get(name) for name in names]
        if values[0] is not None and values[1] is not None:
            return int(values[0]), int(values[1])
        if values != [None, None]:
            raise RuntimeError(f"the environment has only one of {names[0]} and {names[1]}")
    return 0, 1
