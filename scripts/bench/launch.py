"""Measures a launch: python scripts/bench/launch.py [--build FOLDER] [--ranks N] [--hosts N] [--runs N]; an idle machine.

`true` runs on N ranks, timed from the first exec to the last wait.  The launchers are hvdrun alone, hvdrun over each mpirun,
and each mpirun alone.  The launchers take turns, so that a busy moment affects all of them.  The table has medians, least
values and processor time.  It also has the ratio of hvdrun's median to each mpirun's, with the same Open MPI. --hosts 3: N
ranks on each of three hosts.  The hosts are network namespaces of this machine with an sshd each (tests/netns; as root).  The
user has an empty home there, since a .bashrc would add to each ssh.  FOLDER is an optimised build (default: the wheel's).  On a
shared machine: chrt -r 5 python scripts/bench/launch.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPENMPI5 = os.environ.get("HVD_TEST_OPENMPI5", str(ROOT / ".cache/openmpi5/bin/mpirun"))


def commands(hvdrun: str, where: list[str]) -> dict[str, list[str]]:
    """Name → command, for the launchers on this machine.  `where`: options that both kinds of launcher accept."""
    found = {}
    for version, path in (("4.1", shutil.which("mpirun", path="/usr/bin")), ("5.0", OPENMPI5)):
        if not path or not os.access(path, os.X_OK):
            print(f"no Open MPI {version}: {path}", file=sys.stderr)
            continue
        ours = [hvdrun, *where, "--mpirun", path]
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        found[f"hvdrun, libpmix of {version}"] = [*ours, "--", "true"]
        found[f"hvdrun --launcher mpirun {version}"] = [*ours, "--launcher", "mpirun", "--", "true"]
        found[f"mpirun {version}"] = [path, *as_root, "--oversubscribe", *where, "true"]
    return found


def timed(command: list[str]) -> tuple[float, float]:
    """(milliseconds until it has ended, milliseconds of processor time of it and its waited-for children)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return wall * 1e3, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def measure(table: dict[str, list[str]], runs: int) -> dict[str, list[tuple[float, float]]]:
    """Name → timed() of each run, without the first one, which fills caches."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in table}
    for turn in range(runs + 1):
        for name, command in table.items():
            taken = timed(command)
            if turn:
                times[name].append(taken)
    return times


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/wheel")
    parser.add_argument("--ranks", type=int, default=2, help="of each host")
    parser.add_argument("--hosts", type=int, default=1, choices=[1, 2, 3])
    parser.add_argument("--runs", type=int, default=25)
    options = parser.parse_args()
    hvdrun, ranks = str((options.build / "launcher/hvdrun").resolve()), str(options.ranks * options.hosts)
    with contextlib.ExitStack() as until_the_end:
        if options.hosts == 1:
            table = commands(hvdrun, ["-np", ranks])
        else:
            sys.path.insert(0, str(ROOT / "tests"))
            from netns.cluster import Cluster

            hosts = until_the_end.enter_context(Cluster(hosts=options.hosts))
            for name in [] if ROOT.is_relative_to(pathlib.Path.home()) else hosts.names:
                hosts.run(name, ["mount", "-t", "tmpfs", "tmpfs", str(pathlib.Path.home())])
            slots = ",".join(f"{name}:{options.ranks}" for name in hosts.names)
            table = commands(hvdrun, ["-np", ranks, "-H", slots])
            table = {name: hosts.command("alpha", command) for name, command in table.items()}
        times = measure(table, options.runs)
    medians = {name: statistics.median(wall for wall, _ in runs) for name, runs in times.items()}
    print(f"`true` on {ranks} ranks, hosts: {options.hosts}, {options.runs} runs in turn, load {os.getloadavg()[0]:.1f}")
    print(f"{'':30} {'median':>9} {'least':>9} {'processor':>10} {'hvdrun is':>10}")
    for name, runs in times.items():
        least, cpu = min(wall for wall, _ in runs), statistics.median(cpu for _, cpu in runs)
        ours = medians[f"hvdrun, libpmix of {name[-3:]}"]
        print(f"{name:30} {medians[name]:6.1f} ms {least:6.1f} ms {cpu:7.1f} ms {ours / medians[name]:8.2f} x")


if __name__ == "__main__":
    main()
