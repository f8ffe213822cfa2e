"""Hosts without sshd: a program that starts hvdrun serves its launch agents (launch_agent.py) over a unix socket.

hvdrun starts an agent for each host of its manifest, with the script of that host's daemon.  The program runs the script on the
host by a Spark task, a Ray actor or a Ray task.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Callable

from hvd._job.run import hvdrun_program, supervise, write_private

__all__ = ["Agents", "agent_words", "exactly", "listening", "manifest", "natural", "private_folder", "received"]

_JOIN_SECONDS, _FOLDER_SECONDS = 20.0, 60.0


def private_folder() -> Path:
    """Makes a folder that only this user can enter or exchange.  The folder is in $TMPDIR, or in /tmp if other users could
    exchange it in $TMPDIR.

    Removes the folders of processes that were killed.  Errors: RuntimeError if no folder can be made.
    """
    command = [hvdrun_program(), "--agents-folder", str(os.getpid())]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FOLDER_SECONDS)
    if done.returncode:
        raise RuntimeError(f"a private folder cannot be made: {done.stderr.strip()}")
    return Path(done.stdout.rstrip("\n"))


def agent_words(folder: Path) -> list[str]:
    """The launch agent's command, for the manifest.  folder: the folder of its socket."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch_agent.py")), str(folder / "agent"), "{host}"]


def listening(folder: Path) -> socket.socket:
    """The socket to which the agents connect."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.bind(str(folder / "agent"))
    link.listen(256)
    return link


def received(client: socket.socket) -> tuple[str, str]:
    """An agent's host and script.  Errors: OSError or RuntimeError if the agent broke off."""
    client.settimeout(10.0)
    names, scripts = struct.unpack("<II", exactly(client, 8))
    return exactly(client, names).decode(), exactly(client, scripts).decode()


def exactly(link: socket.socket, count: int) -> bytes:
    """The next `count` bytes.  Errors: RuntimeError if fewer come."""
    data = bytearray()
    while len(data) < count:
        piece = link.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise RuntimeError("the connection broke off")
        data += piece
    return bytes(data)


def natural(addresses: Iterable[str]) -> list[str]:
    """GPUs in the order of their numbers; names that are no numbers (UUIDs) last."""
    return sorted(addresses, key=lambda address: (int(address), "") if address.isdigit() else (1 << 30, address))


def manifest(
    source: str,
    application: str,
    slots: dict[str, int],
    gpus: dict[str, list[str]] | None = None,
    agent: list[str] | None = None,
    launcher: str | None = None,
) -> dict[str, Any]:
    """The keys of hvdrun-manifest(5).

    source: the manifest's writer; slots: ranks of each host; gpus: the host's GPU addresses; launcher: hvdrun's address.
    """
    hosts = []
    for host, count in slots.items():
        entry: dict[str, Any] = {"address": host, "slots": count}
        if gpus and gpus.get(host):
            entry["gpus"] = gpus[host]
        hosts.append(entry)
    out: dict[str, Any] = {"version": 1, "source": source, "application": application, "hosts": hosts}
    if agent:
        out["launch_agent"] = agent
    if launcher:
        out["launcher_address"] = launcher
    return out


def _is_open(client: socket.socket) -> bool:
    """Returns whether the agent's connection is open."""
    try:
        return bool(client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


class Agents:
    """Serves each agent in a thread, until its host's daemon has ended.  A subclass runs the daemons."""

    def __init__(self, folder: Path, thread: Any = threading.Thread) -> None:
        """thread: the class of the threads."""
        self.folder, self.path = folder, folder / "manifest.json"
        self.live: dict[str, int] = {}  # by host: the number of its daemons that run or wait for room
        self.failures: dict[str, int] = {}
        self.closed = False
        self.lock = threading.Lock()
        self._thread = thread
        self._threads: list[Any] = []
        self._link = listening(folder)
        thread(target=self._accept, daemon=True).start()

    def run_host(self, name: str, script: str, is_wanted: Callable[[], bool]) -> bool:
        """Runs the host's daemon to its end; True if it ended well.  is_wanted(): hvdrun still waits for it."""
        raise NotImplementedError

    def look(self) -> None:
        """Called now and then while hvdrun runs."""

    def run_hvdrun(
        self, payload: bytes, name: str, words: list[str], environment: dict[str, str], brought: Any
    ) -> tuple[int, str]:
        """Runs hvdrun on the manifest.  Returns its exit code, and the end of its stderr.

        payload: a pickled call, with a name for messages; words: options; brought: a file for the results.
        """
        file = self.folder / f"{''.join(c if c.isalnum() else '_' for c in name).strip('_') or 'payload'}.pkl"
        write_private(file, payload)
        command = [hvdrun_program(), "--manifest", str(self.path), "--allow-writable", "--no-bind", *words]
        command += ["--results", str(brought.fileno()), "--parent", str(os.getpid()), str(file)]

        def tick() -> None:
            self.look()
            if file.exists() and os.fstat(brought.fileno()).st_size:  # hvdrun has read it
                file.unlink(missing_ok=True)

        return supervise(command, brought.fileno(), tick, environment=environment)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replaces the manifest, which hvdrun of an elastic job reads again and again."""
        fresh = self.path.with_suffix(".new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        os.replace(fresh, self.path)

    def _accept(self) -> None:
        while True:
            try:
                client = self._link.accept()[0]
            except OSError:
                return
            thread = self._thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, RuntimeError):
            name, script = received(client)
            client.sendall(b"w")
            client.settimeout(None)
            with self.lock:
                self.live[name] = self.live.get(name, 0) + 1
            ended_well = False
            try:
                ended_well = self.run_host(name, script, partial(_is_open, client))
            finally:
                with self.lock:
                    self.live[name] -= 1
                    self.failures[name] = self.failures.get(name, 0) + (not ended_well)
            client.sendall(b"k" if ended_well else b"f")

    def join(self, seconds: float = _JOIN_SECONDS) -> None:
        """Waits for the daemons' ends."""
        limit = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(limit - time.monotonic(), 0.01))

    def close(self) -> None:
        """Takes no further agent.  hvdrun has ended."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()
