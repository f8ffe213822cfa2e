"""A limit for several waits together, with the names and texts of Horovod."""

from __future__ import annotations

import time

__all__ = ["Timeout", "TimeoutException"]


class TimeoutException(Exception):
    """The time limit has passed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Timeout:
    """timeout: seconds from now.  message: text of the exception, with {activity} in it."""

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout, self._message = timeout, message
        self._ends = time.monotonic() + timeout

    def remaining(self) -> float:
        """The remaining seconds, not less than 0."""
        return max(0.0, self._ends - time.monotonic())

    def timed_out(self) -> bool:
        """Returns whether the time limit has passed."""
        return time.monotonic() > self._ends

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException if the time limit has passed."""
        if self.timed_out():
            said = self._message.format(activity=activity).rstrip()
            raise TimeoutException(f"{said.rstrip('.')}. Timeout after {self._timeout} seconds.")
