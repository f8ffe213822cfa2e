"""Up to four hosts on one machine, for tests.

Each host has its own network namespace, hostname, process ids, /tmp, /dev/shm, /run, /etc/hosts and /etc/ssh, and a real sshd
that its neighbours can use without a question.  The hosts are connected by a bridge in a further network namespace. The hosts
are thus invisible on this machine's own network, and any number of clusters can exist at once with the same addresses.

    with Cluster(hosts=2) as cluster:
        cluster.run("alpha", ["ssh", "beta", "hostname"]).stdout      # "beta\n"

One holder process keeps a cluster alive.  The holder ends when its owner does (its stdin closes) or when its time is over.
Every process of every host ends with the holder, and namespaces need no other clean-up.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Any

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("alpha", "beta", "gamma", "delta")
NETWORK = "10.77.0"
START_LIMIT_SECONDS = 60.0
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = ("ip", "nsenter", "ssh", "ssh-keygen", "/usr/sbin/sshd")


def why_not() -> str | None:
    """None if hosts can be made here, else the reason in one line."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=DEFAULT_PATH) is None]
    if missing:
        return "not installed: " + ", ".join(missing)
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "true"],
        capture_output=True,
        text=True,
        timeout=10,
    )
    return None if probe.returncode == 0 else "no namespaces here: " + probe.stderr.strip()


class Program(subprocess.Popen[Any]):
    """A program on a host.  A failing `with` block kills the program; the block of Popen would wait for its end, for ever."""

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            for process in [*children(self.pid), self.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        super().__exit__(kind, value, traceback)


class NotEnded(AssertionError):
    """A program on a host has not ended in time; the message has its output."""


class Cluster:
    """Hosts alpha, beta, gamma and delta, as many as asked for, at 10.77.0.1, .2, .3, .4.

    `ttl_seconds` bounds the life of the whole cluster, even without its owner.
    """

    def __init__(self, hosts: int = 2, ttl_seconds: float = 3600.0) -> None:
        if not 1 <= hosts <= len(NAMES):
            raise ValueError(f"hosts must be 1 to {len(NAMES)}, not {hosts}")
        self.names = NAMES[:hosts]
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="hvd-hosts-", dir="/tmp"))
        self._holder = subprocess.Popen(
            [sys.executable, str(HERE / "holder.py"), str(self.state), str(hosts), str(ttl_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._info = self._wait_until_up()
        except BaseException:
            self.close()
            raise

    def _wait_until_up(self) -> dict[str, Any]:
        assert self._holder.stdout is not None and self._holder.stderr is not None
        line = self._holder.stdout.readline()  # the holder has its own limit for its start
        if not line:
            raise RuntimeError("the hosts did not come up: " + self._holder.stderr.read().decode(errors="replace"))
        return dict(json.loads(line))

    def address(self, host: str) -> str:
        """The host's IPv4 address."""
        return f"{NETWORK}.{self.names.index(host) + 1}"

    def tmp(self, host: str) -> pathlib.Path:
        """The path at which this machine sees the host's /tmp."""
        self.names.index(host)
        return self.state / host / "tmp"

    def init_pid(self, host: str) -> int:
        """The host's first process, as this machine numbers it."""
        return int(self._info["hosts"][host])

    @property
    def switch_pid(self) -> int:
        """A process in the network namespace of the bridge."""
        return int(self._info["switch"])

    def cable(self, host: str, state: str) -> None:
        """Pulls the cable ("down"), or reconnects it ("up")."""
        inside = ["nsenter", f"--target={self.switch_pid}", "--net"]
        subprocess.run([*inside, "ip", "link", "set", f"p-{host}", state], check=True)

    def command(self, host: str, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = "/tmp") -> list[str]:
        """The argv that runs `argv` on the host with a login-like environment plus `env`."""
        chosen = {name: os.environ[name] for name in ("HVD_LAUNCHER",) if name in os.environ}
        variables = {"PATH": DEFAULT_PATH, "HOME": "/root", "USER": "root", "LANG": "C.UTF-8", **chosen, **(env or {})}
        return [
            "nsenter",
            f"--target={self.init_pid(host)}",
            *("--net", "--mount", "--uts", "--ipc", "--pid", "--root"),
            *("--", "env", "-i", f"--chdir={cwd}"),
            *(f"{name}={value}" for name, value in variables.items()),
            *argv,
        ]

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts `argv` on the host.  Options as Popen's; `env` is added to the login environment, `cwd` is the host's."""
        command = self.command(host, argv, options.pop("env", None), options.pop("cwd", "/tmp"))
        return Program(command, **options)

    def run(
        self, host: str, argv: Sequence[str], *, timeout: float = 120.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs `argv` on the host to its end; text, captured.

        After `timeout` the program is ended, and NotEnded is raised with the output.  The output of a hanging job names the
        ranks and their places.
        """
        options.setdefault("stdin", subprocess.DEVNULL)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with self.popen(host, argv, **pipes, **options) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=timeout)
                return subprocess.CompletedProcess(argv, process.returncode, out, err)
            self.signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=20)
                raise NotEnded(f"not ended after {timeout} s: {argv}\n{out}{err}")
            raise NotEnded(f"not ended after {timeout} s, nor 20 s after a SIGTERM: {argv}")

    @staticmethod
    def signal(process: subprocess.Popen[Any], number: int) -> None:
        """Sends a signal to the program that popen() started (nsenter itself stays outside the host)."""
        for child in children(process.pid):
            os.kill(child, number)

    def processes(self, host: str) -> dict[int, str]:
        """pid (this machine's number) → command line of the host's processes, without its init and sshd."""
        namespace = os.readlink(f"/proc/{self.init_pid(host)}/ns/pid")
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.readlink(entry / "ns/pid") != namespace:
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if line and "holder.py" not in line and not line.startswith(("sshd:", "/usr/sbin/sshd")):
                found[int(entry.name)] = line
        return found

    def close(self) -> None:
        """Ends every process of every host and removes the state folder.  May be called twice."""
        holder = self._holder
        if holder.stdin is not None and not holder.stdin.closed:
            holder.stdin.close()
        try:
            holder.wait(timeout=20)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait(timeout=60)
        for stream in (holder.stdout, holder.stderr):
            close_quietly(stream)
        shutil.rmtree(self.state, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def close_quietly(stream: IO[Any] | None) -> None:
    """Closes a stream if it exists."""
    if stream is not None:
        stream.close()


def children(pid: int) -> list[int]:
    """The children of a process, as this machine numbers them; empty if the process is gone."""
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def sweep() -> int:
    """Removes remains of killed runs: state folders whose holder is gone.  Returns their number.

    The hosts' processes end with their holder.
    """
    removed = 0
    for state in pathlib.Path("/tmp").glob("hvd-hosts-*"):
        try:
            if time.time() - state.stat().st_mtime < 2 * START_LIMIT_SECONDS:
                continue  # a holder may be making this folder now
            pid = int((state / "holder.pid").read_text())
            if "holder.py" in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
                continue
        except (OSError, ValueError):
            pass
        shutil.rmtree(state, ignore_errors=True)
        removed += 1
    return removed


def wait_for(condition: Any, limit_seconds: float, what: str) -> None:
    """Polls `condition` until it is true; TimeoutError that names `what` after the limit."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit_seconds:g} s")
        time.sleep(0.02)


def stop_holder(pid: int) -> None:
    """Ends a holder that this process did not start (the shell command's `down`)."""
    try:
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), 60.0, "the holder's end")
    except ProcessLookupError:
        pass
