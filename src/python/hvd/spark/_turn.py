"""How tasks of one host wait for the first of them without a message: a lock that the kernel frees with its holder.

Waiting in Spark's barrier instead would end the executor when the job is cancelled: in Spark 4 a task that is killed
there takes the whole JVM with it (exit code 50).
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path

_APPEAR_SECONDS = 60.0


def _path(job: str) -> Path:
    return Path(tempfile.gettempdir(), f"hvd-spark-{os.geteuid()}-{job}.lock")


class Turn:
    """Held by the first task of a host until its part of the job has ended."""

    def __init__(self, job: str) -> None:
        self.path = _path(job)
        fresh = self.path.with_suffix(f".{os.getpid()}")
        self.fd: int | None = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        os.rename(fresh, self.path)

    def over(self) -> None:
        """Lets the others go on."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def forget(self) -> None:
        """Removes the file: nobody will look for it any more."""
        self.over()
        self.path.unlink(missing_ok=True)


def wait_for_first(job: str, may_be_over: bool) -> None:
    """Returns when the host's first task has called over(), or is gone.

    may_be_over: the file was there at some moment before this call, so that without it all is over.
    """
    deadline = time.monotonic() + _APPEAR_SECONDS
    while True:
        try:
            fd = os.open(_path(job), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            if may_be_over or time.monotonic() > deadline:
                return
            time.sleep(0.05)
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        finally:
            os.close(fd)
        return


def sweep() -> None:
    """Removes the files of jobs whose first task was killed."""
    for path in Path(tempfile.gettempdir()).glob(f"hvd-spark-{os.geteuid()}-*.lock"):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if time.time() - os.fstat(fd).st_mtime > _APPEAR_SECONDS:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except OSError:
            pass  # held: its job runs
        finally:
            os.close(fd)
