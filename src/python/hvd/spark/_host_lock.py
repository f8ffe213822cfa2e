"""Tasks of one host wait for the first task, through a connection to it.  The kernel closes the connection when that
task ends.

The socket has an abstract name, so no file is left, however the tasks end.  The tasks do not wait in Spark's barrier.
When a job is cancelled, Spark kills its tasks.  In Spark 4, a task killed in the barrier ends the executor's whole JVM
(exit code 50).
"""

from __future__ import annotations

import os
import socket
import threading
import time

_APPEAR_SECONDS = 60.0


def _name(job: str) -> bytes:
    return f"\0hvd-spark-{os.geteuid()}-{job}".encode()


class HostLock:
    """The first task of a host holds it until its part of the job has ended."""

    def __init__(self, job: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(_name(job))
        self.socket.listen(4096)
        self.released = threading.Event()
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        """After the release: ends every connection, also later ones, until close()."""
        self.released.wait()
        try:
            while True:
                self.socket.accept()[0].close()
        except OSError:
            pass

    def release(self) -> None:
        """Lets the other tasks continue."""
        self.released.set()

    def close(self) -> None:
        """No further task will connect."""
        self.release()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        except OSError:
            pass
        self.socket.close()


def wait_for_release(job: str, may_be_released: bool) -> None:
    """Returns when the host's first task has released its lock, or is gone.

    may_be_released: the lock was held at some moment before this call, so a missing lock means that it was released.
    """
    deadline = time.monotonic() + _APPEAR_SECONDS
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            try:
                link.connect(_name(job))
                link.recv(1)
                return
            except ConnectionRefusedError:
                if may_be_released or time.monotonic() > deadline:
                    return
            except OSError:
                return  # reset: the first task is gone
        time.sleep(0.05)
