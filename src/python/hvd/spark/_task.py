"""What each task of the barrier stage does.

Task 0 runs hvdrun with the manifest of the cluster.  hvdrun's launch agent for each other host (_launch_agent.py) gives it the
script of that host's daemon; one allGather hands them to the first task of each host, which runs its own.  The other tasks of
the host wait for that one (_host_lock.py), so that their slots stay taken while ranks run.  An allGather costs a second, so
there is one, and none on a single host; with GPUs one more, before, since hvdrun plans with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvd import _environment
from hvd._run import hvdrun_program, ranks_environment, write_private
from hvd.spark._host_lock import HostLock, wait_for_release
from hvd.spark._manifest import by_host, manifest, natural
from hvd.spark._relay import Sender

_SECRETS = re.compile(r"^(_SPARK_AUTH_SECRET|PYTHON_WORKER_FACTORY_.*|.*SPARK.*(SECRET|PASSWORD).*)$")
# How long hvdrun may take to call its agent for all hosts: it gives up on its start after this by itself.
_SCRIPTS_SECONDS = 60.0
_TAIL_BYTES = 8192
# Results up to this size go through Spark as one row, which costs its JVMs a few times as much; larger ones over the
# channel.  Where there is none, so much is tried.
_ROW_BYTES, _ROW_WITHOUT_CHANNEL_BYTES = 16 << 20, 64 << 20
_FILES_SECONDS, _REST_SECONDS = 60.0, 300.0


@dataclass
class Spec:
    """What the driver tells every task."""

    job: str  # a name that no other job has
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
    """What task 0 gives back."""

    code: int
    results: bytes  # hvdrun's records (hvd._results); empty where they went over the channel
    sent: int  # bytes of them that went there
    lost: int  # bytes of them that are too many for a row, where there is no channel
    errors: str  # the end of what hvdrun wrote to stderr
    hosts: dict[str, int]
    live: bool  # whether the driver got all output


def run_task(spec: Spec, _rows: Any) -> Iterator[Outcome]:
    """One task, from beginning to end.  Yields in task 0 only."""
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
            context.barrier()  # a second, in which the first task keeps its turn for those that come late
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
                _run_daemon(scripts[own], gpus.get(own))
    finally:
        lock.close()


def _gather_gpus(context: Any, hosts: dict[str, list[int]]) -> dict[str, list[str]]:
    """Each host's GPUs: those of all its tasks."""
    gpu = context.resources().get("gpu")
    said = [json.loads(text) for text in context.allGather(json.dumps(list(gpu.addresses) if gpu else []))]
    found = {host: natural({g for task in tasks for g in said[task]}) for host, tasks in hosts.items()}
    return {host: addresses for host, addresses in found.items() if addresses}


def _facts() -> dict[str, str]:
    """What must be the same in all tasks."""
    return {"Python": platform.python_version(), "cloudpickle": _cloudpickle(), "interpreter": sys.executable}


def _cloudpickle() -> str:
    try:
        import cloudpickle
    except ImportError:
        return "missing"
    return str(cloudpickle.__version__)


def _check_cloudpickle(spec: Spec) -> None:
    """Major and minor version must be the driver's: a pickle of another one may not load, or load wrongly."""
    here = _cloudpickle()
    if here == "missing" or here.split(".")[:2] != spec.cloudpickle.split(".")[:2]:
        found = "has none" if here == "missing" else f"has {here}"
        raise RuntimeError(
            f"the driver pickled with cloudpickle {spec.cloudpickle}, and the executor on {socket.gethostname()} {found}: "
            f"install the same version there ({sys.executable} -m pip install cloudpickle=={spec.cloudpickle})"
        )


def _scripts(messages: list[str], hosts: dict[str, list[int]]) -> dict[str, str]:
    """Host → script, out of task 0's message.  RuntimeError where the tasks' Pythons differ."""
    said = [json.loads(text) for text in messages]
    for key in ("Python", "cloudpickle", "interpreter"):
        values = {host: said[tasks[0]]["facts"][key] for host, tasks in hosts.items()}
        compared = {host: ".".join(value.split(".")[:2]) if key != "interpreter" else value for host, value in values.items()}
        if len(set(compared.values())) > 1:
            listed = ", ".join(f"{host} has {value}" for host, value in values.items())
            raise RuntimeError(f"the executors' {key} differs: {listed}. All ranks need the same")
    return {str(host): str(script) for host, script in said[0].get("scripts", {}).items()}


# ---- the hosts without hvdrun ---------------------------------------------------------------------------------------


def _run_daemon(script: str, gpus: list[str] | None) -> str:
    """Runs the daemon of this host until the job has ended.  Returns how it failed, if it did."""
    environment = _clean_environment()
    environment["HVD_HOST_SET_PYTHONPATH"] = ranks_environment()[
        "PYTHONPATH"
    ]  # Spark's folders are called otherwise on each host
    environment["HVD_HOST_CWD"] = os.getcwd()
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    process = subprocess.Popen(
        [hvdrun_program(), "--host-shell", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(script.encode())
    except BaseException:
        process.terminate()
        process.wait()
        raise
    last = "\n".join(said.decode(errors="replace").strip().splitlines()[-5:])
    if process.returncode in (126, 127):
        raise RuntimeError(f"the host daemon cannot start on {socket.gethostname()}: {last}")
    return f"its daemon ended with code {process.returncode}: {last}" if process.returncode else ""


def _clean_environment() -> dict[str, str]:
    """This task's, without what is Spark's alone."""
    return {name: value for name, value in _environment.whole.items() if not _SECRETS.match(name)}


# ---- the host with hvdrun -------------------------------------------------------------------------------------------


def _lead(spec: Spec, context: Any, hosts: dict[str, list[int]], gpus: dict[str, list[str]]) -> Outcome:
    _check_cloudpickle(spec)
    relay = Sender(spec.relay)
    slots = {host: len(tasks) for host, tasks in hosts.items()}
    listed = ", ".join(f"{host} ×{count}" for host, count in slots.items())
    ranks = sum(slots.values())
    relay.send(2, f"hvd.spark: {ranks} rank{'s' * (ranks != 1)} of {spec.name} start on {listed}\n".encode())
    _sweep_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"hvd-spark-job-{os.getpid()}-"))
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


def _sweep_folders() -> None:
    """Removes what tasks left that were killed in their first second: this user's folders, with a socket or empty.

    Each is held by a descriptor: another user may put a link to a third folder in its place.
    """
    for path in Path(tempfile.gettempdir()).glob("hvd-spark-job-*-*"):
        pid = path.name.split("-")[3]
        if not pid.isdigit() or Path("/proc", pid).exists():
            continue
        with contextlib.suppress(OSError):  # a link, another user's, or not empty
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(folder).st_uid == os.geteuid():
                    with contextlib.suppress(FileNotFoundError):
                        if stat.S_ISSOCK(os.stat("agent", dir_fd=folder, follow_symlinks=False).st_mode):
                            os.unlink("agent", dir_fd=folder)
                    path.rmdir()
            finally:
                os.close(folder)


class _Results:
    """What hvdrun brings of the ranks, record by record: kept while it is little, else passed to the driver as it comes."""

    def __init__(self, relay: Sender) -> None:
        self.relay = relay
        self.end, self.write_end = os.pipe()
        self.kept = bytearray()
        self.sent = self.lost = 0
        self.begun = threading.Event()  # hvdrun has read its files, or has ended
        self.thread = threading.Thread(target=self._pump, daemon=True)

    def start(self) -> None:
        """Once hvdrun has the other end."""
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
            self.relay.send(3, data)  # where it fails, less arrives than was sent
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
    """hvdrun as this task's child.  Nothing of it stays on disk."""

    def __init__(self, spec: Spec, folder: Path, slots: dict[str, int], gpus: dict[str, list[str]], relay: Sender) -> None:
        self.relay, self.slots = relay, slots
        self.tail = b""
        self.results = _Results(relay)
        name = re.sub(r"\W+", "_", spec.name).strip("_") or "payload"
        payload = folder / f"{name}.pkl"
        write_private(payload, spec.payload.value)
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.link.bind(str(folder / "agent"))
        self.link.listen(64)
        agent = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_launch_agent.py")), str(folder / "agent"), "{host}"]
        described = manifest(spec.application, slots, gpus, agent)
        write_private(folder / "manifest.json", json.dumps(described).encode())
        self.files = [payload, folder / "manifest.json"]  # hvdrun reads them at once
        own = next(iter(slots))
        environment = {**_clean_environment(), **spec.environment, "PYTHONPATH": ranks_environment()["PYTHONPATH"]}
        environment["HVD_HOST"] = own
        if gpus.get(own):
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[own])
        command = [hvdrun_program(), "--manifest", str(folder / "manifest.json"), "-np", str(sum(slots.values()))]
        # All paths are of this task's making, in folders that Spark gave it: on YARN they lie in another user's.
        command += ["--allow-writable"]
        # Spark shares hosts between applications: binding to cores would put two jobs on the same ones.
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
        """Host → the script that starts its daemon, from `count` agents; fewer when hvdrun ends first."""
        found: dict[str, str] = {}
        deadline = time.monotonic() + _SCRIPTS_SECONDS
        self.link.settimeout(0.1)
        while len(found) < count and self.process.poll() is None and time.monotonic() < deadline:
            try:
                client, _ = self.link.accept()
            except socket.timeout:
                continue
            with client:
                client.settimeout(10.0)
                names, scripts = struct.unpack("<II", _exactly(client, 8))
                host = _exactly(client, names).decode()
                found[host] = _exactly(client, scripts).decode()
                client.sendall(b"k")
        self.link.close()
        return found

    def wait(self) -> Outcome:
        """hvdrun's end, with what it brought."""
        code = self.process.wait()
        for pump in self.pumps:
            pump.join(5.0)  # a stray process may hold the pipe
        self.results.thread.join(_REST_SECONDS)
        brought = self.results
        return Outcome(
            code, bytes(brought.kept), brought.sent, brought.lost, self.tail.decode(errors="replace"), self.slots, False
        )

    def end(self) -> None:
        """Ends the job as Ctrl-C would, and kills hvdrun when that takes too long."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = link.recv(count - len(data))
        if not piece:
            raise RuntimeError("the launch agent broke off")
        data += piece
    return data
