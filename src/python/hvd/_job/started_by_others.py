"""The part of init() for processes that another launcher than hvdrun has started.

- torchrun, and launchers that set its variables: the ranks meet through its store (store_meeting.py).
- srun, with all tasks of the step on one host: the ranks meet through a socket of the first task.
- Others: the process trains alone and prints a line that says so.  HVD_STRICT=1 makes that an error.
"""

from __future__ import annotations

import datetime
import os
import pathlib
import socket
import sys
import time
import zlib
from typing import Any

from hvd._job.host_store import HostStore
from hvd._job.store_meeting import Launch, Store, open_meeting
from hvd._runtime import environment as _environment

__all__ = ["begin", "check"]

# Variables of launchers: this process's number, and the number of processes.  Open MPI's are left out: libhvd joins its
# world.
_PROCESSES = [
    ("RANK", "WORLD_SIZE", "torchrun"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"),
    ("PMI_RANK", "PMI_SIZE", "mpiexec"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH's mpirun"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "flux run"),
]


def begin() -> None:
    """Before init(): makes the ranks' meeting if the launcher offers a place for it.  RuntimeError if that fails."""
    if _by_hvdrun_or_mpi() or _environment.given("HVD_MEETING_FD"):
        return
    store, launch = _torch_launch() or _slurm_launch() or (None, None)
    if store is None or launch is None:
        return
    if launch.many_hosts and _environment.flag("HVD_ENCRYPT_TENSORS"):
        raise RuntimeError(
            "HVD_ENCRYPT_TENSORS=1 needs a key that no stranger can read, and the store of torchrun sends it in clear:"
            " start the script with hvdrun --encrypt-tensors"
        )
    try:
        open_meeting(store, launch)
    except TimeoutError as error:
        raise RuntimeError(f"init: {error}") from None


def check(size: int) -> None:
    """After init() of all ranks: reports a world of one if others were started too.  RuntimeError if HVD_STRICT=1."""
    if size > 1 or _by_hvdrun_or_mpi():
        return
    for rank_name, size_name, launcher in _PROCESSES:
        rank, count = _number(rank_name), _number(size_name)
        if rank is None or max(count or 0, rank + 1) < 2:
            continue
        sign = f"{size_name}={count}" if count else f"{rank_name}={rank}"
        text = (
            f"hvd: this process trains alone, though {launcher} seems to have started several ({sign}): hvd.init() found"
            f" no world. Start the script with hvdrun in place of {launcher}: hvdrun -np {count or 'N'} script.py"
        )
        if _environment.flag("HVD_STRICT"):
            raise RuntimeError(text)
        print(f"{text} (HVD_STRICT=1 makes this an error)", file=sys.stderr, flush=True)
        return


def place() -> str:
    """A text that distinguishes this job from others of other launchers; empty: no launcher."""
    if _environment.given("HVD_RANK"):
        return ""
    if _torch_variables():
        return "-".join(_environment.whole[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"))
    if _slurm_variables():
        return "-".join(_environment.whole.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"))
    return ""


def _by_hvdrun_or_mpi() -> bool:
    names = ("HVD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK")
    return any(_environment.whole.get(name) for name in names)


def _number(name: str) -> int | None:
    try:
        return int(_environment.whole[name])
    except (KeyError, ValueError):
        return None


# ---- torchrun -------------------------------------------------------------------------------------------------------


def _torch_variables() -> bool:
    size = _number("WORLD_SIZE")
    return size is not None and size > 1 and all(_environment.whole.get(n) for n in ("RANK", "MASTER_ADDR", "MASTER_PORT"))


class _TorchStore:
    """torch's store, with polling, because its own wait() cannot be interrupted."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return bytes(self._store.get(key))

    def wait(self, key: str, seconds: float) -> bool:
        end, pause = time.monotonic() + seconds, 0.001
        while not self._store.check([key]):
            if time.monotonic() > end:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return True


def _torch_launch() -> tuple[Store, Launch] | None:
    if not _torch_variables():
        return None
    try:
        from torch.distributed.rendezvous import rendezvous
    except ImportError:
        return None  # check() reports it
    limit = datetime.timedelta(seconds=_environment.number("HVD_INIT_TIMEOUT"))
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=limit)))
    except Exception as error:
        where = f"{_environment.whole['MASTER_ADDR']}:{_environment.whole['MASTER_PORT']}"
        raise RuntimeError(
            f"init: the store of torch at {where} (MASTER_ADDR, MASTER_PORT) does not answer: {error}"
        ) from error
    return _TorchStore(store), Launch(rank, size, _host_number(), many_hosts=_number("LOCAL_WORLD_SIZE") != size)


def _host_number() -> int:
    """A number that is equal for ranks that can connect without a network: same host, same boot, same network
    namespace."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
    return zlib.crc32(f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/net')}".encode()) & 0x7FFFFFFF


# ---- srun -----------------------------------------------------------------------------------------------------------


def _slurm_variables() -> bool:
    """Returns whether this process is one of several tasks of a Slurm step on one host.  In a batch script,
    SLURM_STEP_NUM_TASKS is at most 1."""
    tasks = _number("SLURM_STEP_NUM_TASKS")
    return tasks is not None and tasks > 1 and _number("SLURM_STEP_NUM_NODES") == 1 and _number("SLURM_PROCID") is not None


def _slurm_launch() -> tuple[Store, Launch] | None:
    if not _slurm_variables():
        return None
    rank, size = _number("SLURM_PROCID"), _number("SLURM_STEP_NUM_TASKS")
    assert rank is not None and size is not None
    step = "-".join(_environment.whole.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    name = f"hvd-slurm-{os.geteuid()}-{step}"
    try:
        store = HostStore(name, rank == 0, _environment.number("HVD_INIT_TIMEOUT"))
    except OSError as error:  # TimeoutError and PermissionError too
        raise RuntimeError(f"init: the tasks of this step cannot meet: {error}") from error
    return store, Launch(rank, size, 0, many_hosts=False)
