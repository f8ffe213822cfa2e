"""Shared by both programs that measure a step: the gradients of ResNet-50, and processor time thread by thread."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

ENGINE = "hvd-engine"  # the name of the runtime's thread


def resnet50_shapes() -> list[tuple[int, ...]]:
    """Shapes of ResNet-50's 161 parameters, by its definition."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += [(width, inside, 1, 1), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            shapes += [(4 * width, width, 1, 1), (4 * width,), (4 * width,)]
            if block == 0:
                shapes += [(4 * width, inside, 1, 1), (4 * width,), (4 * width,)]
            inside = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def _tasks() -> dict[int, str]:
    """Numbers and names of this process's threads."""
    found = {}
    for number in os.listdir("/proc/self/task"):
        try:
            found[int(number)] = Path(f"/proc/self/task/{number}/comm").read_text().strip()
        except OSError:  # the thread has ended
            continue
    return found


def engine_thread() -> int:
    """The number of the runtime's thread in this process.  LookupError before hvd.init()."""
    found = [number for number, name in _tasks().items() if name == ENGINE]
    if not found:
        raise LookupError(f"no thread is called {ENGINE}")
    return min(found)  # threads that it has started have the same name


@dataclass
class Processor:
    """Processor time in microseconds, and sleeps of the engine's thread: at one moment, or between two."""

    caller: float  # this thread, and those in which autograd runs
    engine: float
    total: float  # of all threads, also those that have ended
    sleeps: int

    @staticmethod
    def begin(engine: int) -> Processor:
        """Returns the counters as of the function's return: the cost of reading /proc for each thread is excluded."""
        sleeps, autograd = _sleeps(engine), _autograd_us()
        return Processor(time.thread_time() * 1e6 + autograd, _time_of(engine) * 1e6, time.process_time() * 1e6, sleeps)

    @staticmethod
    def end(engine: int) -> Processor:
        """The moment at which this function was called."""
        caller, used, total = time.thread_time() * 1e6, _time_of(engine) * 1e6, time.process_time() * 1e6
        return Processor(caller + _autograd_us(), used, total, _sleeps(engine))

    def since(self, begin: Processor) -> Processor:
        return Processor(
            self.caller - begin.caller, self.engine - begin.engine, self.total - begin.total, self.sleeps - begin.sleeps
        )

    @property
    def others(self) -> float:
        """The time of all threads except the caller's and the engine's."""
        return max(0.0, self.total - self.caller - self.engine)


def _autograd_us() -> float:
    """Returns the processor time of autograd's threads, in microseconds. The threads must be idle."""
    return sum(_time_of(number) * 1e6 for number, name in _tasks().items() if name.startswith("pt_autograd"))


def _sleeps(engine: int) -> int:
    status = Path(f"/proc/self/task/{engine}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def _time_of(thread: int) -> float:
    return time.clock_gettime((~thread << 3) | 6)  # a thread's clock, by its number
