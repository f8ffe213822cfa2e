"""Slots of an elastic job in Spark.  Each is a Spark job of one task, which runs the daemon of one of hvdrun's hosts.

hvdrun runs at the driver.  Its launch agent for a slot (_launch_agent.py) connects to this module over a unix socket with the
daemon's script.  The script travels to an executor in the task's closure.  When the executor is lost, its task and the slot
fail.  hvdrun then asks for the slot again, and the request waits until Spark has room for it, on another executor.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hvd.spark import _session
from hvd.spark._errors import JobCancelled, explained
from hvd.spark._manifest import manifest
from hvd.spark._task import Spec, _check_cloudpickle, _exactly, _run_daemon

_NAME = "spark-"
# After this number of failures a slot gets another name: hvdrun starts no rank there again.
_MOST_FAILURES = 2
_LOOK_SECONDS = 0.5
_JOIN_SECONDS = 20.0


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
    yield _run_daemon(script, list(gpu.addresses) if gpu else None)


class Slots:
    """At the driver: the manifest that hvdrun reads repeatedly, and the Spark jobs of its hosts."""

    def __init__(self, context: Any, folder: Path, most: int, spec: Spec, start_timeout: float) -> None:
        """most: the number of slots to offer, if Spark has them; start_timeout: hvdrun's limit for the start of one."""
        self.context, self.folder, self.most, self.spec, self.start_timeout = context, folder, most, spec, start_timeout
        self.path = folder / "manifest.json"
        self._lock = threading.Lock()
        self._live: dict[str, int] = {}  # slots with a Spark job, or waiting for room: how many
        self._failures: dict[str, int] = {}
        self._listed: list[str] = []
        self._next = self._generation = 0
        self._look_at = 0.0
        self._threads: list[Any] = []
        self._address = _session.listening_addresses(context)[1]
        self._closed = False
        self._cancelled: JobCancelled | None = None
        self._link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._link.bind(str(folder / "agent"))
        self._link.listen(256)
        from pyspark import InheritableThread

        self._new_thread: Any = InheritableThread  # with the caller's job group, by which notebooks cancel
        self._new_thread(target=self._accept, daemon=True).start()
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
        with self._lock:
            kept = [name for name in self._listed if self._failures.get(name, 0) < _MOST_FAILURES or self._live.get(name)]
            # Removes those without a task first: Spark may lose one executor and keep others.
            idle = [name for name in kept if not self._live.get(name)]
            while len(kept) > room and idle:
                kept.remove(idle.pop())
            while len(kept) < room:
                kept.append(f"{_NAME}{self._next}")
                self._next += 1
            if kept == self._listed or not kept:
                return
            self._listed = kept
        agent = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_launch_agent.py")), str(self.folder / "agent")]
        about = manifest(self.context.applicationId, dict.fromkeys(kept, 1), None, [*agent, "{host}"], self._address)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(about))
        fresh.chmod(0o600)
        os.replace(fresh, self.path)

    # ---- what hvdrun asks for

    def _accept(self) -> None:
        while True:
            try:
                client = self._link.accept()[0]
            except OSError:
                return
            self._generation += 1
            thread = self._new_thread(target=self._serve, args=(client, self._generation), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket, generation: int) -> None:
        """Serves one start of a slot's daemon.  The agent stays until the daemon has ended."""
        with client, contextlib.suppress(OSError, RuntimeError):
            client.settimeout(10.0)
            names, scripts = struct.unpack("<II", _exactly(client, 8))
            name, script = _exactly(client, names).decode(), _exactly(client, scripts).decode()
            client.sendall(b"w")
            tag = f"{self.spec.job}-{generation}"
            with self._lock:
                self._live[name] = self._live.get(name, 0) + 1
            try:
                ended_well = self._has_room() and self._run(tag, name, script)
            finally:
                with self._lock:
                    self._live[name] -= 1
            if not ended_well:
                with self._lock:
                    self._failures[name] = self._failures.get(name, 0) + 1
            client.sendall(b"k" if ended_well else b"f")

    def _has_room(self) -> bool:
        """Waits until Spark has a free slot for one more task of this job, within hvdrun's limit for the daemon."""
        limit = time.monotonic() + self.start_timeout
        while not self._closed and time.monotonic() < limit:
            try:
                room = _session.slots(self.context)
            except Exception:  # the session is being stopped
                return False
            with self._lock:
                if sum(self._live.values()) <= room:
                    return True
            time.sleep(0.2)
        return False

    def _run(self, tag: str, name: str, script: str) -> bool:
        context = self.context
        try:
            # Only jobs of this thread: Spark keeps such properties for each thread.
            if hasattr(context, "addJobTag"):  # Spark 3.5
                context.addJobTag(self.spec.job)
            else:
                context.setJobGroup(self.spec.job, f"hvd.spark: {self.spec.name}", interruptOnCancel=True)
            context.setLocalProperty("spark.job.description", f"hvd.spark: {self.spec.name}, {name} ({tag})")
            ended = context.parallelize([0], 1).mapPartitions(partial(run_slot, self.spec, script)).collect()
            why = ended[0]
        except Exception as error:
            told = explained(error, 1)
            if isinstance(told, JobCancelled) and not self._closed:
                self._cancelled = told
            why = str(told).splitlines()[0]
        if why and not self._closed:
            print(f"hvd.spark: {name} has ended: {why}", file=sys.stderr, flush=True)
        return not why

    def close(self) -> None:
        """Ends the remaining Spark jobs.  hvdrun has ended."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()
        limit = time.monotonic() + 2.0  # daemons end by themselves after hvdrun
        for thread in self._threads:
            thread.join(max(limit - time.monotonic(), 0.01))
        with contextlib.suppress(Exception):  # the context may be gone
            if hasattr(self.context, "cancelJobsWithTag"):
                self.context.cancelJobsWithTag(self.spec.job)
            else:
                self.context.cancelJobGroup(self.spec.job)
        limit = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(limit - time.monotonic(), 0.01))
