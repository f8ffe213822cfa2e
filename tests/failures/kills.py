"""SIGKILL for one process of a job over two hosts, at a random moment; then nothing of the job may be left on either.

    python tests/failures/kills.py [--kills 500] [--side 3] [--first SEED] [--launcher mpirun]     prints a table

The job: four ranks in a loop of allreduces, each with children in sessions of their own, one of them without environment.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from netns.cluster import Cluster, children, why_not
from support import hvdrun

LIMIT_SECONDS = 10.0
COMMON = {
    "hvdrun": r"\S*/hvdrun -np ",
    "ssh": r"(\S*/)?ssh ",
    "rank": r"\S*python\S*( -P)? /tmp/killed.py",
}
PATTERNS = {  # launcher → kind → of its command lines; a guard has its parent's
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


@dataclass
class Outcome:
    """What was killed when, and what was left of the job after the limit."""

    seed: int
    victim: str
    moment: float
    seconds: float = 0.0  # until nothing was left
    left: list[str] = field(default_factory=list)
    note: str = ""


def victims(launcher: str) -> list[str]:
    """Kinds of processes that are killed, in turn."""
    return sorted(PATTERNS[launcher])


def pick(hosts: Cluster, launcher: str, victim: str, choice: random.Random) -> int | None:
    """A process of that kind, on either host."""
    pattern = re.compile(PATTERNS[launcher][victim])
    found = sorted(pid for host in hosts.names for pid, line in hosts.processes(host).items() if pattern.match(line))
    found = [pid for pid in found if name_of(pid) != "hvdrank-pmix"]  # MPI's server: no job without MPI needs it
    if victim in ("guard", ABOVE_GUARDS[launcher]):
        guards = [pid for pid in found if any(pid in children(other) for other in found)]
        found = guards if victim == "guard" else [pid for pid in found if pid not in guards]
    # Not the short-lived ones below it, whose end changes nothing: some have ended by now.  A rank's are on their way to exec.
    if victim in ("shell", "rank"):
        found = [pid for pid in found if (above := parent(pid)) is not None and above not in found]
    return choice.choice(found) if found else None


def name_of(pid: int) -> str:
    """As the process calls itself; "" once it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parent(pid: int) -> int | None:
    """The parent of a process that runs; of none that has ended."""
    try:
        state, above = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else int(above)


def killed(pid: int | None) -> bool:
    """Kills a process; false where it has ended by itself meanwhile."""
    if pid is None:
        return False
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return False
    return True


def left_over(hosts: Cluster) -> list[str]:
    """Processes and files in /dev/shm of any job, on any host."""
    found = [f"{host}: {pid} {line}" for host in hosts.names for pid, line in hosts.processes(host).items()]
    for host in hosts.names:
        shared = pathlib.Path(f"/proc/{hosts.init_pid(host)}/root/dev/shm")
        found += [f"{host}: {path.name}" for path in shared.iterdir()]
    return found


def one(hosts: Cluster, seed: int, launcher: str, mpirun: str, longest: float, package: str) -> Outcome:
    """One job, one kill."""
    choice = random.Random(seed)
    kinds = victims(launcher)
    outcome = Outcome(seed, kinds[seed % len(kinds)], choice.uniform(0, longest))
    (hosts.tmp("alpha") / "killed.py").write_text(RANK)
    (hosts.tmp("beta") / "killed.py").write_text(RANK)
    argv = [hvdrun.program(), "-np", "4", "-H", "alpha:2,beta:2", "--launcher", launcher, "--mpirun", mpirun]
    argv += [*hvdrun.python_args(), "/tmp/killed.py"]
    env = {"PYTHONPATH": package, "HVD_SHARE_GPUS": "1"} if package else {"HVD_SHARE_GPUS": "1"}
    job = hosts.popen(
        "alpha", argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        time.sleep(outcome.moment)
        until = time.monotonic() + 20
        while not (done := killed(pick(hosts, launcher, outcome.victim, choice))):
            if time.monotonic() > until or job.poll() is not None:
                break
            time.sleep(0.01)
        if not done:
            outcome.note = f"no {outcome.victim} came"
        at = time.monotonic()
        while (left := left_over(hosts)) and time.monotonic() - at < LIMIT_SECONDS:
            time.sleep(0.05)
        outcome.seconds, outcome.left = time.monotonic() - at, left
        if left:
            for host in hosts.names:
                for stray in hosts.processes(host):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(stray, 9)
                for path in pathlib.Path(f"/proc/{hosts.init_pid(host)}/root/dev/shm").iterdir():
                    path.unlink()
    finally:
        job.kill()
        _, said = job.communicate(timeout=20)
    if outcome.victim != "hvdrun" and "hvdrun: " not in said:
        outcome.note = outcome.note or f"hvdrun said nothing: {said!r}"
    return outcome


def campaign(
    first: int, kills: int, side_by_side: int, launcher: str, mpirun: str, longest: float = 5.0, package: str = ""
) -> list[Outcome]:
    """So many kills, over some pairs of hosts that work side by side."""

    def share(index: int) -> list[Outcome]:
        with Cluster(hosts=2, ttl_seconds=7200) as hosts:
            seeds = range(first + index, first + kills, side_by_side)
            return [one(hosts, seed, launcher, mpirun, longest, package) for seed in seeds]

    with concurrent.futures.ThreadPoolExecutor(side_by_side) as pool:
        return sorted((o for part in pool.map(share, range(side_by_side)) for o in part), key=lambda o: o.seed)


def table_text(outcomes: list[Outcome]) -> str:
    """For people."""
    lines = [f"{'killed':8} kills  left  seconds until nothing is left: median, most"]
    for victim in sorted({o.victim for o in outcomes}):
        mine = [o for o in outcomes if o.victim == victim]
        if mine:
            seconds = sorted(o.seconds for o in mine)
            bad = sum(bool(o.left) for o in mine)
            lines.append(f"{victim:8} {len(mine):5} {bad:5}  {seconds[len(seconds) // 2]:.2f}, {seconds[-1]:.2f}")
    for o in outcomes:
        if o.left or o.note:
            lines.append(f"seed {o.seed}, {o.victim} at {o.moment:.2f} s: {o.note} {o.left}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--side", type=int, default=3, help="jobs side by side")
    parser.add_argument("--longest", type=float, default=5.0, help="latest moment, in seconds")
    parser.add_argument("--launcher", choices=list(PATTERNS), default="hvdrun")
    parser.add_argument("--mpirun", default="/usr/bin/mpirun")
    parser.add_argument(
        "--package", default=os.environ.get("PYTHONPATH", ""), help="folder of the package hvd, if not installed"
    )
    options = parser.parse_args()
    if reason := why_not():
        print(reason)
        return 0
    outcomes = campaign(
        options.first, options.kills, options.side, options.launcher, options.mpirun, options.longest, options.package
    )
    print(table_text(outcomes))
    return 1 if any(o.left for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
