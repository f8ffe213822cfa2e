"""The work of each task of the barrier stage.

Task 0 runs hvdrun with the manifest of the cluster.  hvdrun's launch agent for each other host (launch_agent.py) passes
task 0 the script of that host's daemon.  One allGather sends the scripts to the first task of each host, which runs its
own script.  The other tasks of the host wait for the first one (_host_lock.py).  So their slots stay taken while ranks run.  An
allGather costs a second, so there is only one, and none on a single host.  With GPUs there is one more before it, since hvdrun
plans with them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvd._job.agents import agent_words, listening, manifest, natural, private_folder, received
from hvd._job.host_daemon import clean_environment, run_daemon
from hvd._job.run import hvdrun_program, ranks_environment, write_private
from hvd.spark._host_lock import HostLock, wait_for_release
from hvd.spark._manifest import by_host
from hvd.spark._relay import Sender

# hvdrun's time to call its agent for all hosts; its start fails by itself after this time.
_SCRIPTS_SECONDS = 60.0
_TAIL_BYTES = 8192
# Results up to this size go through Spark as one row, which costs its JVMs a few times as much.  Larger ones use the channel;
# without a channel, a row may have the second size.
_ROW_BYTES, _ROW_WITHOUT_CHANNEL_BYTES = 16 << 20, 64 << 20
_FILES_SECONDS, _REST_SECONDS = 60.0, 300.0


@dataclass
class Spec:
    """The driver's data for every task."""

    job: str  # a name that is unique among jobs
    name: str  # of the function, for messages
    payload: Any  # a broadcast of the pickled call
    application: str
    cloudpickle: str
    gpus: bool
    relay: dict[str, Any] | None
    environment: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    executable: str | None = None


@dataclass
class Outcome:
    """The result of task 0."""

    code: int
    results: bytes  # hvdrun's records (hvd._job.results); empty if the channel carried them
    sent: int  # their bytes that the channel carried
    lost: int  # their bytes beyond the limit of a row, without a channel
    errors: str  # the end of hvdrun's stderr
    hosts: dict[str, int]
    live: bool  # whether the driver got all output


def run_task(spec: Spec, _rows: Any) -> Iterator[Outcome]:
    """Runs one task.  Yields in task 0 only."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    me = context.partitionId()
    hosts = by_host([info.address for info in context.getTaskInfos()])
    own = next(host for host, tasks in hosts.items() if me in tasks)
    gpus = _gather_gpus(context, hosts) if spec.gpus else {}
    alone = len(hosts) == 1
    if hosts[own][0] != me:
        if not alone:
            context.allGather(json.dumps({"facts": _facts()}))
        wait_for_release(spec.job, may_be_released=not alone)
        if alone:
            context.barrier()  # takes a second, in which the first task holds the lock for late ones
        return
    lock = HostLock(spec.job)
    try:
        if me == 0:
            outcome = _lead(spec, context, hosts, gpus)
            lock.release()
            if alone and len(hosts[own]) > 1:
                context.barrier()
            yield outcome
        else:
            scripts = _scripts(context.allGather(json.dumps({"facts": _facts()})), hosts)
            if own in scripts:
                run_daemon(scripts[own], gpus.get(own))
    finally:
        lock.close()


def _gather_gpus(context: Any, hosts: dict[str, list[int]]) -> dict[str, list[str]]:
    """Each host's GPUs: those of all its tasks."""
    gpu = context.resources().get("gpu")
    said = [json.loads(text) for text in context.allGather(json.dumps(list(gpu.addresses) if gpu else []))]
    found = {host: natural({g for task in tasks for g in said[task]}) for host, tasks in hosts.items()}
    return {host: addresses for host, addresses in found.items() if addresses}


def _facts() -> dict[str, str]:
    """Facts that must be equal in all tasks."""
    return {"Python": platform.python_version(), "cloudpickle": _cloudpickle(), "interpreter": sys.executable}


def _cloudpickle() -> str:
    try:
        import cloudpickle
    except ImportError:
        return "missing"
    return str(cloudpickle.__version__)


def _check_cloudpickle(spec: Spec) -> None:
    """Requires the driver's major and minor version: a pickle of another version may not load, or load wrongly."""
    here = _cloudpickle()
    if here == "missing" or here.split(".")[:2] != spec.cloudpickle.split(".")[:2]:
        found = "has none" if here == "missing" else f"has {here}"
        raise RuntimeError(
            f"the driver pickled with cloudpickle {spec.cloudpickle}, and the executor on {socket.gethostname()} {found}: "
            f"install the same version there ({sys.executable} -m pip install cloudpickle=={spec.cloudpickle})"
        )


def _scripts(messages: list[str], hosts: dict[str, list[int]]) -> dict[str, str]:
    """Host → script, from task 0's message.  RuntimeError if the tasks' Pythons differ."""
    said = [json.loads(text) for text in messages]
    for key in ("Python", "cloudpickle", "interpreter"):
        values = {host: said[tasks[0]]["facts"][key] for host, tasks in hosts.items()}
        compared = {host: ".".join(value.split(".")[:2]) if key != "interpreter" else value for host, value in values.items()}
        if len(set(compared.values())) > 1:
            listed = ", ".join(f"{host} has {value}" for host, value in values.items())
            raise RuntimeError(f"the executors' {key} differs: {listed}. All ranks need the same")
    return {str(host): str(script) for host, script in said[0].get("scripts", {}).items()}


# ---- the host with hvdrun -------------------------------------------------------------------------------------------


def _lead(spec: Spec, context: Any, hosts: dict[str, list[int]], gpus: dict[str, list[str]]) -> Outcome:
    _check_cloudpickle(spec)
    relay = Sender(spec.relay)
    slots = {host: len(tasks) for host, tasks in hosts.items()}
    listed = ", ".join(f"{host} ×{count}" for host, count in slots.items())
    ranks = sum(slots.values())
    relay.send(2, f"hvd.spark: {ranks} rank{'s' * (ranks != 1)} of {spec.name} start on {listed}\n".encode())
    folder = private_folder()
    job = _Hvdrun(spec, folder, slots, gpus, relay)
    try:
        job.results.begun.wait(_FILES_SECONDS)
        for file in job.files:
            file.unlink(missing_ok=True)
        if len(hosts) > 1:
            scripts = job.take_scripts(len(hosts) - 1)
        shutil.rmtree(folder, ignore_errors=True)
        if len(hosts) > 1:
            _scripts(context.allGather(json.dumps({"facts": _facts(), "scripts": scripts})), hosts)
        outcome = job.wait()
    except BaseException:
        job.end()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    outcome.live = relay.close()
    return outcome


class _Results:
    """The ranks' results from hvdrun, record by record.  Small ones are kept; otherwise they go to the driver as they
    come."""

    def __init__(self, relay: Sender) -> None:
        self.relay = relay
        self.end, self.write_end = os.pipe()
        self.kept = bytearray()
        self.sent = self.lost = 0
        self.begun = threading.Event()  # hvdrun has read its files, or has ended
        self.thread = threading.Thread(target=self._pump, daemon=True)

    def start(self) -> None:
        """Starts once hvdrun has the other end."""
        os.close(self.write_end)
        self.thread.start()

    def _pump(self) -> None:
        with os.fdopen(self.end, "rb", buffering=0) as stream:
            while data := os.read(stream.fileno(), 1 << 18):
                self.begun.set()
                self._take(data)
        self.begun.set()

    def _take(self, data: bytes) -> None:
        if self.sent:
            self.sent += len(data)
            self.relay.send(3, data)  # after a failure, fewer bytes arrive than were sent
            return
        if self.lost:
            self.lost += len(data)
            return
        self.kept += data
        size = len(self.kept)
        if size > _ROW_BYTES and self.relay.send(3, self.kept):
            self.sent, self.kept = size, bytearray()
        elif size > _ROW_WITHOUT_CHANNEL_BYTES:
            self.lost, self.kept = size, bytearray()


class _Hvdrun:
    """hvdrun as this task's child.  hvdrun leaves no file on disk."""

    def __init__(self, spec: Spec, folder: Path, slots: dict[str, int], gpus: dict[str, list[str]], relay: Sender) -> None:
        self.relay, self.slots = relay, slots
        self.tail = b""
        self.results = _Results(relay)
        name = re.sub(r"\W+", "_", spec.name).strip("_") or "payload"
        payload = folder / f"{name}.pkl"
        write_private(payload, spec.payload.value)
        self.link = listening(folder)
        described = manifest("spark", spec.application, slots, gpus, agent_words(folder))
        write_private(folder / "manifest.json", json.dumps(described).encode())
        self.files = [payload, folder / "manifest.json"]  # hvdrun reads them at once
        own = next(iter(slots))
        environment = {**clean_environment(), **spec.environment, "PYTHONPATH": ranks_environment()["PYTHONPATH"]}
        environment["HVD_HOST"] = own
        if gpus.get(own):
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[own])
        command = [hvdrun_program(), "--manifest", str(folder / "manifest.json"), "-np", str(sum(slots.values()))]
        # All paths are this task's own, in folders that Spark gave it.  On YARN these folders lie in another user's folder.
        command += ["--allow-writable"]
        # Spark shares hosts between applications: binding would put two jobs on the same cores.
        command += ["--python", spec.executable or sys.executable, "--no-bind", *spec.options]
        command += ["--results", str(self.results.write_end), "--parent", str(os.getpid()), str(payload)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(self.results.write_end,),
            env=environment,
            start_new_session=True,
        )
        self.results.start()
        self.pumps = [
            threading.Thread(target=self._pump, args=(number, stream), daemon=True)
            for number, stream in ((1, self.process.stdout), (2, self.process.stderr))
        ]
        for pump in self.pumps:
            pump.start()

    def _pump(self, number: int, stream: Any) -> None:
        while data := os.read(stream.fileno(), 65536):
            if number == 2:
                self.tail = (self.tail + data)[-_TAIL_BYTES:]
            self.relay.send(number, data)

    def take_scripts(self, count: int) -> dict[str, str]:
        """Host → the script that starts its daemon, from `count` agents; fewer if hvdrun ends first."""
        found: dict[str, str] = {}
        deadline = time.monotonic() + _SCRIPTS_SECONDS
        self.link.settimeout(0.1)
        while len(found) < count and self.process.poll() is None and time.monotonic() < deadline:
            try:
                client, _ = self.link.accept()
            except socket.timeout:
                continue
            with client:
                host, script = received(client)
                found[host] = script
                client.sendall(b"k")
        self.link.close()
        return found

    def wait(self) -> Outcome:
        """Waits for hvdrun's end; returns its outcome."""
        code = self.process.wait()
        for pump in self.pumps:
            pump.join(5.0)  # a stray process may hold the pipe
        self.results.thread.join(_REST_SECONDS)
        brought = self.results
        return Outcome(
            code, bytes(brought.kept), brought.sent, brought.lost, self.tail.decode(errors="replace"), self.slots, False
        )

    def end(self) -> None:
        """Ends the job as Ctrl-C would, and kills hvdrun if that takes too long."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
