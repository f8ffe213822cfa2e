"""Jobs over the hosts of a cluster: their environment, listening sockets and memory."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO

from netns.cluster import Cluster
from support import hvdrun

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build")).resolve()
SSH_PORT = 22
LISTENING = "0A"


def python() -> str:
    """The ranks' interpreter: HVD_TEST_PYTHON, or this one."""
    return os.environ.get("HVD_TEST_PYTHON", sys.executable)


def environment(**extra: str) -> dict[str, str]:
    """Variables that a job of the build folder needs besides a login's environment."""
    return {"PYTHONPATH": str(BUILD / "src/python"), "OMP_NUM_THREADS": "1", **extra}


def line_with(stream: IO[str] | None, words: str) -> str:
    """The next line with these words; AssertionError with all lines if none has them."""
    said = []
    while line := hvdrun.read_line(stream):
        said.append(line)
        if words in line:
            return line
    raise AssertionError(f"not said: {words}\n{''.join(said)}")


@contextlib.contextmanager
def pulled(
    job: subprocess.Popen[str], pull: Callable[[str], object], words: str, ranks: int = 2
) -> Iterator[tuple[str, float]]:
    """Runs pull("down") once all ranks are ready; yields the line with these words, and the seconds until it came.

    At the end runs pull("up") and ends the job.
    """
    try:
        lines = [hvdrun.read_line(job.stdout) for _ in range(ranks)]
        assert all("ready" in line for line in lines), "".join(lines) + job.communicate(timeout=30)[1]
        gone = time.monotonic()
        pull("down")
        told = line_with(job.stderr, words)
        yield told, time.monotonic() - gone
    finally:
        pull("up")
        job.kill()
        job.wait(10)


def listening(cluster: Cluster, host: str) -> dict[tuple[str, int], int]:
    """(address, port) → inode of the listening TCP sockets on a host, without sshd's."""
    found = {}
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/{cluster.init_pid(host)}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            address, _, port = words[1].partition(":")
            if words[3] == LISTENING and int(port, 16) != SSH_PORT:
                parts = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
                raw = struct.pack(f"={len(parts)}I", *parts)
                found[socket.inet_ntop(family, raw), int(port, 16)] = int(words[9])
    return found


def owners(cluster: Cluster, host: str, inode: int) -> list[str]:
    """Command lines of the processes that hold a socket."""
    lines = []
    for pid, line in cluster.processes(host).items():
        folder = f"/proc/{pid}/fd"
        lines += [line for fd in entries(folder) if link(f"{folder}/{fd}") == f"socket:[{inode}]"]
    return lines


def entries(folder: str) -> list[str]:
    """The entries of a folder; empty for a process that is gone."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def link(path: str) -> str:
    """The target of a link; empty if it is gone."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def resident_bytes(pid: int) -> int:
    """The resident memory; 0 for a process that is gone."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0
