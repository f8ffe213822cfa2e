"""What both programs that measure a step share: the gradients of ResNet-50, and processor time thread by thread."""

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


def engine_thread() -> int:
    """The number of the runtime's thread in this process.  LookupError before hvd.init()."""
    for task in sorted(Path("/proc/self/task").iterdir(), key=lambda task: int(task.name)):
        try:
            if (task / "comm").read_text().strip() == ENGINE:
                return int(task.name)
        except FileNotFoundError:  # it has ended
            continue
    raise LookupError(f"no thread is called {ENGINE}")


@dataclass
class Processor:
    """Processor time in microseconds, and how often the engine's thread went to sleep: a moment, or from one to another."""

    caller: float
    engine: float
    total: float  # of all threads
    sleeps: int

    @staticmethod
    def now(engine: int) -> Processor:
        status = Path(f"/proc/self/task/{engine}/status").read_text()
        sleeps = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        of_engine = time.clock_gettime((~engine << 3) | 6)  # the clock of a thread, by its number
        caller, total = time.thread_time(), time.process_time()
        return Processor(caller * 1e6, of_engine * 1e6, total * 1e6, sleeps)

    def since(self, begin: Processor) -> Processor:
        return Processor(
            self.caller - begin.caller, self.engine - begin.engine, self.total - begin.total, self.sleeps - begin.sleeps
        )

    @property
    def others(self) -> float:
        """Of all threads but the caller's and the engine's."""
        return max(0.0, self.total - self.caller - self.engine)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))
