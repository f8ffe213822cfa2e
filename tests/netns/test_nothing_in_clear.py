"""Secrets of a job over two hosts that others could read.  The bridge is recorded during whole jobs and searched; so are
command lines, hvdrun's own output (--verbose, --dry-run) and every file that all users can read."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import secrets
import shutil
import stat
import threading
import time

import pytest

from netns import jobs
from netns.capture import Capture
from netns.cluster import Cluster
from support import hvdrun

# Cloudpickled by value, since it is in __main__.  The marks are in its constants, and thus in the pickle's bytes.
PROGRAM = """
import cloudpickle, os, sys, time

def job(argument):
    import hvd.numpy as hvd
    import numpy, os, sys, time
    hvd.init()
    payload = "MARK_payload"
    total = hvd.allreduce(numpy.ones(4), op=hvd.Sum, name="t")
    assert total.tolist() == [hvd.size()] * 4
    print("MARK_output", os.environ["SECRET_OF_THE_USER"] == "MARK_" + "variable", flush=True)
    print("MARK_errors", file=sys.stderr, flush=True)
    time.sleep(2)
    end = time.monotonic() + 60
    while not os.path.exists("/tmp/seen") and time.monotonic() < end:
        time.sleep(0.05)
    return "MARK_" + "result" + str(hvd.rank()) + str(len(payload))

with open("/tmp/job.pkl", "wb") as file:
    cloudpickle.dump((job, ("MARK_argument",), {}), file)
"""


KEYS = re.compile(rb"(?<=HVD_JOB_KEYS=)[!-~]{40}:[!-~]{40}(?=\0)")  # Z85: public:secret
NAMESPACE = re.compile(rb"(?<=PMIX_NAMESPACE=)[!-~]+(?=\0)")


class Watch(threading.Thread):
    """Observes both hosts while a job runs: the secrets, in the processes that have them; command lines, environments,
    files that all users may read."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.keys: set[str] = set()
        self.namespaces: set[str] = set()
        self.command_lines: set[str] = set()
        self.environments_with_key: set[str] = set()  # command lines of such processes, once ranks run
        self.files: dict[str, bytes] = {}
        self.over = threading.Event()

    def run(self) -> None:
        ranks_run = False
        while not self.over.wait(0.05):
            # A rank's output is later than the removal of the keys.  The folder and hvdrun's list in it are earlier.
            output = self.cluster.tmp("alpha") / "output"
            ranks_run = ranks_run or any(path.stat().st_size > 0 for path in output.rglob("stdout"))
            for host in self.cluster.names:
                for pid, line in self.cluster.processes(host).items():
                    if not re.search("(^|[ /])env -i ", line):  # the cluster's own command, which becomes hvdrun
                        self.command_lines.add(line)
                    environment = contents(f"/proc/{pid}/environ")
                    self.namespaces.update(found.decode() for found in NAMESPACE.findall(environment))
                    self.keys.update(found.decode() for found in KEYS.findall(environment))
                    if ranks_run and KEYS.search(environment):
                        self.environments_with_key.add(line)
                    if re.match(r"\S*/sh( |$)", line):  # the shell that waits for a host's daemon
                        self.keys.update(found.decode() for found in KEYS.findall(memory(pid)))
                self.files.update(readable_by_all(self.cluster, host))
            for host in self.cluster.names if ranks_run and self.keys else ():
                (self.cluster.tmp(host) / "seen").touch()  # the job may end


def contents(path: str) -> bytes:
    """The content of a file in /proc; empty for a process that is gone."""
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


def memory(pid: int) -> bytes:
    """The writable memory of a process."""
    found = []
    for line in contents(f"/proc/{pid}/maps").decode().splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if line.split()[1].startswith("rw"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
                file.seek(begin)
                found.append(file.read(end - begin))
    return b"".join(found)


def readable_by_all(cluster: Cluster, host: str) -> dict[str, bytes]:
    """Files of a host's /tmp, /dev/shm and /run that any user may read, without those of the test."""
    found = {}
    top = pathlib.Path(f"/proc/{cluster.init_pid(host)}/root")
    for place in (cluster.tmp(host), top / "dev/shm", top / "run"):
        for folder, folders, names in os.walk(place):
            folders[:] = [name for name in folders if open_to_all(pathlib.Path(folder) / name)]
            for path in (pathlib.Path(folder) / name for name in names):
                try:
                    about = path.lstat()
                    if stat.S_ISREG(about.st_mode) and about.st_mode & stat.S_IROTH and path.name != "job.pkl":
                        found[f"{host} {path}"] = path.read_bytes()
                except OSError:
                    continue  # it is gone already
    return found


def open_to_all(folder: pathlib.Path) -> bool:
    """Returns whether all users can enter the folder; False if it is gone already."""
    try:
        return bool(folder.stat().st_mode & stat.S_IXOTH)
    except OSError:
        return False


@pytest.mark.parametrize("launcher", ["hvdrun", "mpirun"])
@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
@pytest.mark.timeout(180)
def test_nothing_of_a_job_is_in_clear(two_hosts: Cluster, mpirun: str, launcher: str) -> None:
    words = ("payload", "output", "errors", "variable", "argument", "result")
    marks = {word: secrets.token_hex(20) for word in words}
    program = re.sub(r'"MARK_" \+ "(\w+)"', lambda m: repr(marks[m[1]]), PROGRAM)
    program = re.sub(r"MARK_(\w+)", lambda m: marks[m[1]], program)
    made = two_hosts.run("alpha", [jobs.python(), "-c", program])
    assert made.returncode == 0, made.stderr

    shutil.rmtree(two_hosts.tmp("alpha") / "output", ignore_errors=True)
    for host in two_hosts.names:
        (two_hosts.tmp(host) / "seen").unlink(missing_ok=True)
    watch = Watch(two_hosts)
    watch.start()
    env = jobs.environment(SECRET_OF_THE_USER=marks["variable"], HVD_MPIRUN=mpirun, HVD_LAUNCHER=launcher)
    argv = [hvdrun.program(), "-np", "2", "-H", "alpha:1,beta:1", "--results", "/tmp/results", "--verbose"]
    argv += ["--output-filename", "/tmp/output", "--timeline-filename", "/tmp/timeline.json"]
    argv += ["--python", jobs.python(), "/tmp/job.pkl"]
    (two_hosts.tmp("alpha") / "results").touch(mode=0o600)
    with Capture(two_hosts) as wire:
        start = time.monotonic()
        done = two_hosts.run("alpha", argv, env=env, timeout=120)
        seconds = time.monotonic() - start
    print(f"the job took {seconds:.1f} s; {wire.frame_count} frames")
    watch.over.set()
    watch.join(timeout=60)
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown

    # The job ran on both hosts, and the searched text existed there.
    assert shown.count(marks["output"]) == 2 and shown.count(marks["errors"]) == 2, shown
    assert "beta" in shown and f"{marks['output']} True" in shown
    assert (two_hosts.tmp("alpha") / "results").read_bytes().count(marks["result"].encode()) == 2
    assert not (two_hosts.tmp("beta") / "job.pkl").exists()
    assert len(watch.keys) == 1, f"the shell on beta or mpirun's environment should hold one pair of keys: {watch.keys}"
    assert wire.find(b"OpenSSH") and len(wire.streams) > 4, "the capture missed the job"

    needles = {word: mark.encode() for word, mark in marks.items()}
    secret = next(iter(watch.keys))[41:]  # the public key in Z85 (40 characters, possibly with a colon), ":", the secret
    assert len(secret) == 40
    needles["secret"] = secret.encode()
    if launcher == "hvdrun":
        assert not watch.environments_with_key
        (namespace,) = watch.namespaces
        needles["PMIx's namespace"] = namespace.encode()
    for what, needle in needles.items():
        assert not wire.find(needle), f"{what} crosses the network in clear, in {wire.find(needle)}"
    lines = "\n".join(watch.command_lines)
    own = "\n".join(line for line in shown.splitlines() if not re.match(r"\[\d+ \w+\] ", line))
    planned = two_hosts.run("alpha", [*argv[:1], "--dry-run", *argv[1:]], env=env)
    assert planned.returncode == 0, planned.stderr
    print(f"{len(watch.files)} files are readable by all: {sorted(watch.files)}")
    for what, needle in needles.items():
        assert needle.decode() not in lines, f"{what} stands in a command line"
        assert needle.decode() not in own, f"hvdrun itself prints {what}"
        assert needle.decode() not in planned.stdout + planned.stderr, f"--dry-run prints {what}"
        for path, data in watch.files.items():
            assert needle not in data, f"{path} holds {what} for all to read"
