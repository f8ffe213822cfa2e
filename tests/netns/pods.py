"""Pods of a job whose hosts join by themselves: a launcher (hvdrun --listen) and workers (hvdrun join), each on a host."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from typing import Any

from netns import jobs
from netns.cluster import Cluster, children
from support import hvdrun

PORT = 4999
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
TOKEN = "/tmp/token"


def give_token(cluster: Cluster, *hosts: str, token: str | None = None) -> str:
    """Writes the same token on each host, as a Secret's volume does."""
    token = token or secrets.token_urlsafe(32)
    for host in hosts:
        file = cluster.tmp(host) / "token"
        file.unlink(missing_ok=True)
        file.write_text(token + "\n")
        file.chmod(0o440)
    return token


def launcher(
    cluster: Cluster, *argv: str, host: str = "alpha", limit: int = 60, files: int = 0, **env: str
) -> subprocess.Popen[str]:
    """The launcher's pod; `files`: its limit of descriptors."""
    words = [hvdrun.program(), "--listen", str(PORT), "--token-file", TOKEN, "--elastic-timeout", str(limit)]
    words += ["--python", jobs.python(), *argv]
    if files:
        words = ["prlimit", f"--nofile={files}", *words]
    return cluster.popen(host, words, env=jobs.environment(**env), stdin=subprocess.DEVNULL, **PIPES)


def worker(
    cluster: Cluster, host: str, *options: str, name: str = "", limit: int = 60, at: str = "alpha"
) -> subprocess.Popen[str]:
    """A worker's pod; `name` is its host name, if not the host's."""
    words = [hvdrun.program(), "join", "--token-file", TOKEN, "--elastic-timeout", str(limit), *options]
    words.append(f"{cluster.address(at)}:{PORT}")
    if name:
        words = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *words]
    return cluster.popen(host, words, env=jobs.environment(), stdin=subprocess.DEVNULL, **PIPES)


def line_with(process: subprocess.Popen[str], words: str) -> str:
    """Returns the next line of standard error that contains these words. Without such a line, the AssertionError has the text
    read."""
    return jobs.line_with(process.stderr, words)


def ended(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str, str]:
    """Exit code and the rest of the output.  seconds: the limit on an idle machine."""
    out, err = process.communicate(timeout=hvdrun.within(seconds))
    return process.returncode, out, err


def kill(process: subprocess.Popen[Any], number: int = signal.SIGKILL) -> None:
    """Ends a pod as Kubernetes does: sends the signal to the pod's first process."""
    for child in children(process.pid):
        subprocess.run(["kill", f"-{int(number)}", str(child)], check=False)


def crash(cluster: Cluster, host: str) -> None:
    """Kills all processes of a pod, and removes its files in /tmp."""
    for _ in range(3):  # a fork may escape once
        for pid in cluster.processes(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for path in cluster.tmp(host).glob("hvd-*"):
        shutil.rmtree(path, ignore_errors=True)
