"""Slots of an elastic job in Spark.  Each is a Spark job of one task, which runs the daemon of one of hvdrun's hosts.

hvdrun runs at the driver.  Its launch agent for a slot (launch_agent.py) connects to this module over a unix socket with the
daemon's script.  The script travels to an executor in the task's closure.  When the executor is lost, its task and the slot
fail.  hvdrun then asks for the slot again, and the request waits until Spark has room for it, on another executor.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Callable

from hvd._job.agents import Agents, agent_words, manifest
from hvd._job.host_daemon import run_daemon
from hvd.spark import _session
from hvd.spark._errors import JobCancelled, explained
from hvd.spark._task import Spec, _check_cloudpickle

_NAME = "spark-"
# After this number of failures a slot gets another name: hvdrun starts no rank there again.
_MOST_FAILURES = 2
_LOOK_SECONDS = 0.5


def run_slot(spec: Spec, script: str, _rows: Any) -> Iterator[str]:
    """The task of one slot; yields the failure, or nothing."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() > 0:  # Spark repeats a lost task, but hvdrun asks for the slot again by itself
        yield "its executor was lost"
        return
    _check_cloudpickle(spec)
    gpu = context.resources().get("gpu") if spec.gpus else None
    yield run_daemon(script, list(gpu.addresses) if gpu else None)


class Slots(Agents):
    """At the driver: the manifest that hvdrun reads repeatedly, and the Spark jobs of its hosts."""

    def __init__(self, context: Any, folder: Path, most: int, spec: Spec, start_timeout: float) -> None:
        """most: the number of slots to offer, if Spark has them; start_timeout: hvdrun's limit for the start of one."""
        self.context, self.most, self.spec, self.start_timeout = context, most, spec, start_timeout
        self._listed: list[str] = []
        self._next = 0
        self._look_at = 0.0
        self._address = _session.listening_addresses(context)[1]
        self._cancelled: JobCancelled | None = None
        from pyspark import InheritableThread

        super().__init__(folder, InheritableThread)  # with the caller's job group, by which notebooks cancel
        self.look()

    # ---- what hvdrun may use

    def look(self) -> None:
        """Writes the manifest again when Spark's slots have changed; checks them from time to time.

        JobCancelled: somebody has cancelled a slot's job, which means all of them.
        """
        if self._cancelled is not None:
            raise self._cancelled
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        try:
            room = min(self.most, _session.slots(self.context))
        except Exception:  # the session is being stopped
            return
        with self.lock:
            kept = [name for name in self._listed if self.failures.get(name, 0) < _MOST_FAILURES or self.live.get(name)]
            # Removes those without a task first: Spark may lose one executor and keep others.
            idle = [name for name in kept if not self.live.get(name)]
            while len(kept) > room and idle:
                kept.remove(idle.pop())
            while len(kept) < room:
                kept.append(f"{_NAME}{self._next}")
                self._next += 1
            if kept == self._listed or not kept:
                return
            self._listed = kept
        agent = agent_words(self.folder)
        self.write_manifest(manifest("spark", self.context.applicationId, dict.fromkeys(kept, 1), None, agent, self._address))

    # ---- what hvdrun asks for

    def run_host(self, name: str, script: str, is_wanted: Callable[[], bool]) -> bool:
        """Runs the slot's task, when Spark has room for it."""
        return self._has_room(is_wanted) and self._run(name, script)

    def _has_room(self, is_wanted: Callable[[], bool]) -> bool:
        """Waits until Spark has a free slot for one more task of this job, within hvdrun's limit for the daemon."""
        limit = time.monotonic() + self.start_timeout
        while not self.closed and time.monotonic() < limit and is_wanted():
            try:
                room = _session.slots(self.context)
            except Exception:  # the session is being stopped
                return False
            with self.lock:
                if sum(self.live.values()) <= room:
                    return True
            time.sleep(0.2)
        return False

    def _run(self, name: str, script: str) -> bool:
        context = self.context
        try:
            # Only jobs of this thread: Spark keeps such properties for each thread.
            if hasattr(context, "addJobTag"):  # Spark 3.5
                context.addJobTag(self.spec.job)
            else:
                context.setJobGroup(self.spec.job, f"hvd.spark: {self.spec.name}", interruptOnCancel=True)
            context.setLocalProperty("spark.job.description", f"hvd.spark: {self.spec.name}, {name}")
            ended = context.parallelize([0], 1).mapPartitions(partial(run_slot, self.spec, script)).collect()
            why = ended[0]
        except Exception as error:
            told = explained(error, 1)
            if isinstance(told, JobCancelled) and not self.closed:
                self._cancelled = told
            why = str(told).splitlines()[0]
        if why and not self.closed:
            print(f"hvd.spark: {name} has ended: {why}", file=sys.stderr, flush=True)
        return not why

    def close(self) -> None:
        """Ends the remaining Spark jobs.  hvdrun has ended."""
        super().close()
        self.join(2.0)  # daemons end by themselves after hvdrun
        with contextlib.suppress(Exception):  # the context may be gone
            if hasattr(self.context, "cancelJobsWithTag"):
                self.context.cancelJobsWithTag(self.spec.job)
            else:
                self.context.cancelJobGroup(self.spec.job)
        self.join()
