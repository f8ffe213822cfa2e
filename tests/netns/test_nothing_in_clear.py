"""What of a job over two hosts can be read on the wire: the bridge is recorded during whole jobs, and searched."""

from __future__ import annotations

import os
import pathlib
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator

import pytest

from netns.capture import Capture
from netns.cluster import Cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"
HVDRUN = ROOT / ".venv/bin/hvdrun"

# Cloudpickled by value, since it lies in __main__. The marks are in its constants, so in the pickle's bytes.
PROGRAM = """
import cloudpickle, os, sys, time

def job(argument):
    import hvd.torch as hvd
    import os, sys, time, torch
    hvd.init()
    payload = "MARK_payload"
    total = hvd.allreduce(torch.ones(4), op=hvd.Sum, name="t")
    assert total.tolist() == [hvd.size()] * 4
    print("MARK_output", os.environ["SECRET_OF_THE_USER"] == "MARK_" + "variable", flush=True)
    print("MARK_errors", file=sys.stderr, flush=True)
    time.sleep(2)
    return "MARK_" + "result" + str(hvd.rank()) + str(len(payload))

with open("/tmp/job.pkl", "wb") as file:
    cloudpickle.dump((job, ("MARK_argument",), {}), file)
"""


def mpiruns() -> Iterator[object]:
    """Debian's mpirun and the second Open MPI."""
    second = os.environ.get("HVD_TEST_OPENMPI5", str(ROOT / ".cache/openmpi5/bin/mpirun"))
    for name, path in (("openmpi4", shutil.which("mpirun", path="/usr/bin")), ("openmpi5", second)):
        absent = pytest.mark.skip(reason=f"{name} is not installed: {path}")
        there = path is not None and os.access(path, os.X_OK)
        yield pytest.param(path, id=name, marks=[] if there else [absent])


class Watch(threading.Thread):
    """Looks at both hosts while a job runs: the keys in mpirun's environment, and every command line there is."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.keys: set[str] = set()
        self.command_lines: set[str] = set()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.05):
            for host in self.cluster.names:
                for pid, line in self.cluster.processes(host).items():
                    self.command_lines.add(line)
                    self.keys.update(job_keys(pid))


def job_keys(pid: int) -> list[str]:
    """The job's keys, "public:secret", in a process's environment; the guard wipes its own."""
    try:
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    return [line.decode()[len("HVD_JOB_KEYS=") :] for line in environment if re.fullmatch(b"HVD_JOB_KEYS=.{81}", line)]


@pytest.mark.parametrize("mpirun", list(mpiruns()))
@pytest.mark.timeout(180)
def test_nothing_of_a_job_is_in_clear(two_hosts: Cluster, mpirun: str) -> None:
    if not HVDRUN.exists():
        pytest.skip("no .venv/bin/hvdrun (scripts/setup)")
    words = ("payload", "output", "errors", "variable", "argument", "result")
    marks = {word: secrets.token_hex(20) for word in words}
    program = re.sub(r'"MARK_" \+ "(\w+)"', lambda m: repr(marks[m[1]]), PROGRAM)
    program = re.sub(r"MARK_(\w+)", lambda m: marks[m[1]], program)
    made = two_hosts.run("alpha", [str(PYTHON), "-c", program])
    assert made.returncode == 0, made.stderr

    watch = Watch(two_hosts)
    watch.start()
    env = {"SECRET_OF_THE_USER": marks["variable"], "HVD_MPIRUN": mpirun}
    argv = [str(HVDRUN), "-np", "2", "-H", "alpha:1,beta:1", "--results", "/tmp/results"]
    argv += ["--timeline-filename", "/tmp/timeline.json", "--python", str(PYTHON), "/tmp/job.pkl"]
    (two_hosts.tmp("alpha") / "results").touch(mode=0o600)
    with Capture(two_hosts) as wire:
        start = time.monotonic()
        done = two_hosts.run("alpha", argv, env=env, timeout=120)
        seconds = time.monotonic() - start
    print(f"the job took {seconds:.1f} s; {wire.frame_count} frames")
    watch.over.set()
    watch.join(timeout=10)
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown

    # It ran on both hosts, and what we look for was really there.
    assert shown.count(marks["output"]) == 2 and shown.count(marks["errors"]) == 2, shown
    assert "beta" in shown and f"{marks['output']} True" in shown
    assert (two_hosts.tmp("alpha") / "results").read_bytes().count(marks["result"].encode()) == 2
    assert not (two_hosts.tmp("beta") / "job.pkl").exists()
    assert len(watch.keys) == 1, f"mpirun's environment should hold one pair of keys: {len(watch.keys)}"
    assert wire.find(b"OpenSSH") and len(wire.streams) > 4, "the capture missed the job"

    needles = {word: mark.encode() for word, mark in marks.items()}
    secret = next(iter(watch.keys))[41:]  # the public key in Z85 (40 characters, a colon may be among them), ":", the secret
    assert len(secret) == 40
    needles["secret"] = secret.encode()
    for what, needle in needles.items():
        assert not wire.find(needle), f"{what} crosses the network in clear, in {wire.find(needle)}"
    lines = "\n".join(watch.command_lines)
    for what in ("secret", "variable", "payload"):
        assert needles[what].decode() not in lines, f"{what} stands in a command line"
