"""Decides which process of a rank is the rank: the first one that calls init().

A program may start several processes in a rank, as torch.multiprocessing.spawn does, and only these call init().  The
first process locks a file in the job's folder on this host.  The lock is a record lock.  Children of fork() do not inherit it.
The kernel releases it when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import struct

__all__ = ["claim"]

_LOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, process

_locked: tuple[str, int, int] | None = None  # path, the process that has locked it, its descriptor


def claim(path: str) -> None:
    """Makes this process the rank.  RuntimeError if another process is the rank.

    path: a file that only processes of this rank lock.  Programs that run one after the other may each be the rank.
    """
    global _locked
    if _locked is not None and _locked[:2] == (path, os.getpid()):
        return  # if this process closed another descriptor of the file, the kernel would release the lock
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # the folder is not visible here, as in a container: nothing can be decided
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        other = _holder(file)
        os.close(file)
        raise RuntimeError(
            f"hvd.init() was called in {f'process {other}' if other else 'another process'}, which is this rank; this"
            f" process, {os.getpid()}, runs beside it and is no rank. Let hvdrun start a rank for each process"
            " (hvdrun -np N script.py), in place of the script (torch.multiprocessing.spawn)"
        ) from None
    except OSError:
        os.close(file)  # a file system without locks
        return
    _locked = path, os.getpid(), file


def _holder(file: int) -> int:
    """The process that has locked the file.  0: it has ended meanwhile, or runs in another PID namespace."""
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_LOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return max(pid, 0) if kind != fcntl.F_UNLCK else 0
