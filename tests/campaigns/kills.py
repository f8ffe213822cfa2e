"""SIGKILL for one process of a job over two hosts, at a random moment; afterwards nothing of the job may be left.

    tests/campaigns/run kills [--kills 500] [--side 3] [--first SEED] [--launcher mpirun]

The job: four ranks in a loop of allreduces, each with children in sessions of their own, one of them without environment.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import re
import subprocess
import time

from campaigns.engine import Campaign, Outcome, Trial
from netns.cluster import Cluster, children, why_not
from support import hvdrun

LIMIT_SECONDS = 10.0  # on an idle machine: hvdrun's own limits grow with the load
COMMON = {
    "hvdrun": r"\S*/hvdrun -np ",
    "ssh": r"(\S*/)?ssh ",
    "rank": r"\S*python\S*( -P)? /tmp/killed.py",
}
PATTERNS = {  # launcher → kind → pattern of its command lines; a guard has its parent's
    "hvdrun": {**COMMON, "shell": r"/bin/sh$", "daemon": r"\S*/hvdrank --daemon ", "guard": r"\S*/hvdrank --daemon "},
    "mpirun": {
        **COMMON,
        "mpirun": r"\S*/(mpirun|orterun|prterun) ",
        "daemon": r"\S*\b(orted|prted) ",
        "watchdog": r"\S*/hvdrank$",
        "guard": r"\S*/hvdrank$",
    },
}
ABOVE_GUARDS = {"hvdrun": "daemon", "mpirun": "watchdog"}
RANK = """
import os, subprocess, sys
subprocess.Popen(["setsid", "sleep", "1234"])
subprocess.Popen(["setsid", "sh", "-c", "sleep 1234; true"], env={})
import numpy as np
import hvd.numpy as hvd
hvd.init()
x = np.ones(1000, "f4")
while True: hvd.allreduce(x, name="x")
"""


def victims(launcher: str) -> list[str]:
    """The kinds of processes to kill, in turn."""
    return sorted(PATTERNS[launcher])


def pick(hosts: Cluster, launcher: str, victim: str, choice: random.Random) -> int | None:
    """A process of that kind, on either host."""
    pattern = re.compile(PATTERNS[launcher][victim])
    found = sorted(pid for host in hosts.names for pid, line in hosts.processes(host).items() if pattern.match(line))
    found = [pid for pid in found if name_of(pid) != "hvdrank-pmix"]  # MPI's server, which a job without MPI does not need
    if victim in ("guard", ABOVE_GUARDS[launcher]):
        guards = [pid for pid in found if any(pid in children(other) for other in found)]
        found = guards if victim == "guard" else [pid for pid in found if pid not in guards]
    # Excludes short-lived child processes, whose death changes nothing. Children of a rank are between fork and exec.
    if victim in ("shell", "rank"):
        found = [pid for pid in found if (above := parent(pid)) is not None and above not in found]
    return choice.choice(found) if found else None


def name_of(pid: int) -> str:
    """The process's own name; "" once it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parent(pid: int) -> int | None:
    """The parent of a running process; None if it has ended."""
    try:
        state, above = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else int(above)


def killed(pid: int | None) -> bool:
    """Kills a process; False if it has ended by itself meanwhile."""
    if pid is None:
        return False
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return False
    return True


# Open MPI makes such a file to see whether shm_open() works, and removes it at once (its component shmem/posix). A process that
# is killed in between leaves the file behind, with any launcher. The file has no mark of hvdrun, so hvdrun must not remove it.
OPEN_MPIS_PROBE = re.compile(r"open_mpi\.\d{4}")


def left_over(hosts: Cluster) -> list[str]:
    """Processes and files in /dev/shm of any job, on any host."""
    found = [f"{host}: {pid} {line}" for host in hosts.names for pid, line in hosts.processes(host).items()]
    for host in hosts.names:
        shared = pathlib.Path(f"/proc/{hosts.init_pid(host)}/root/dev/shm")
        found += [f"{host}: {path.name}" for path in shared.iterdir() if not OPEN_MPIS_PROBE.fullmatch(path.name)]
    return found


def start(hosts: Cluster, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Starts the job on both hosts."""
    for host in hosts.names:
        (hosts.tmp(host) / "killed.py").write_text(RANK)
    argv = [hvdrun.program(), "-np", "4", "-H", "alpha:2,beta:2", "--launcher", options.launcher, "--mpirun", options.mpirun]
    argv += [*hvdrun.python_args(), "/tmp/killed.py"]
    env = {"HVD_SHARE_GPUS": "1", **({"PYTHONPATH": options.package} if options.package else {})}
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    return hosts.popen("alpha", argv, env=env, stdin=null, stdout=null, stderr=pipe, text=True)


def kill_one(hosts: Cluster, job: subprocess.Popen[str], launcher: str, victim: str, choice: random.Random) -> bool:
    """Waits for a process of that kind and kills it; False if none appeared."""
    until = time.monotonic() + 20
    while not killed(pick(hosts, launcher, victim, choice)):
        if time.monotonic() > until or job.poll() is not None:
            return False
        time.sleep(0.01)
    return True


def wait_until_nothing_is_left(hosts: Cluster) -> tuple[float, list[str]]:
    """(seconds, the rest after the limit, which is then removed)."""
    begin, limit = time.monotonic(), LIMIT_SECONDS * hvdrun.patience()
    while (left := left_over(hosts)) and time.monotonic() - begin < limit:
        time.sleep(0.05)
    seconds = time.monotonic() - begin
    for host in hosts.names if left else []:
        for stray in hosts.processes(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(stray, 9)
        for path in pathlib.Path(f"/proc/{hosts.init_pid(host)}/root/dev/shm").iterdir():
            path.unlink()
    return seconds, left


def judge(trial: Trial, hosts: Cluster, options: argparse.Namespace) -> list[Outcome]:
    """One job, one kill.  Right: nothing is left.  A remark: no process was killed, or hvdrun printed nothing."""
    choice = random.Random(trial.seed)
    moment, note = choice.uniform(0, options.longest), ""
    job = start(hosts, options)
    try:
        time.sleep(moment)
        if not kill_one(hosts, job, options.launcher, trial.case, choice):
            note = f"no {trial.case} came"
        seconds, left = wait_until_nothing_is_left(hosts)
    finally:
        job.kill()
        _, said = job.communicate(timeout=20)
    if trial.case != "hvdrun" and "hvdrun: " not in said:
        note = note or f"hvdrun said nothing: {said!r}"
    about = f"at {moment:.2f} s: {note} {left}" if note or left else ""
    if left:
        about = f"hvdrun said {said[-600:]!r}; {about}"
    return [Outcome(*trial, right=not left, about=about, figures={"seconds": seconds})]


def trials(options: argparse.Namespace) -> list[Trial]:
    """All kinds of victims in turn."""
    kinds = victims(options.launcher)
    return [Trial(kinds[seed % len(kinds)], seed) for seed in range(options.first, options.first + options.kills)]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--longest", type=float, default=5.0, help="latest moment, in seconds")
    parser.add_argument("--launcher", choices=list(PATTERNS), default="hvdrun")
    parser.add_argument("--mpirun", default="/usr/bin/mpirun")


CAMPAIGN = Campaign(
    __doc__,
    trials,
    judge,
    add_options,
    place=lambda _: Cluster(hosts=2, ttl_seconds=7200),
    why_not=lambda _: why_not() or "",
    side=3,
)
