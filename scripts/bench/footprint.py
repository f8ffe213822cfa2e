"""Measures a job's memory and wake-ups: python scripts/bench/footprint.py [--build FOLDER] [--ranks N] [--seconds S].

N ranks sleep on this host.  The table has rows for hvdrun, the host daemon, the guards and a rank.  Its columns are memory,
processor time, and the wake-ups of their threads in S idle seconds.  Memory is PSS of smaps_rollup: a page that n processes
share counts 1/n in each.  The last line has daemon and guards together for each rank.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_LIMIT_SECONDS = 60.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Use:
    """Figures of one process at one moment."""

    wakes: int = 0
    seconds: float = 0.0


def children(pid: int) -> list[int]:
    """The child processes of all threads of a process."""
    found = [path.read_text().split() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted(int(child) for line in found for child in line)


def pss_bytes(pid: int) -> int:
    """Memory of a process; shared pages are divided among their users."""
    match = re.search(r"^Pss: +(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert match
    return int(match[1]) << 10


def use(pid: int) -> Use:
    """The figures now.  A voluntary context switch means that a thread went to sleep, and so was woken before."""
    total = Use()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        match = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M)
        assert match
        total.wakes += int(match[1])
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    total.seconds = (int(fields[11]) + int(fields[12])) / TICKS
    return total


def processes(job: subprocess.Popen[bytes], ranks: int) -> dict[str, list[int]]:
    """Kind → pids, once all ranks sleep."""
    limit = time.monotonic() + START_LIMIT_SECONDS
    while time.monotonic() < limit:
        daemons = children(job.pid)
        below = [child for daemon in daemons for child in children(daemon)]
        servers = [pid for pid in below if pathlib.Path(f"/proc/{pid}/comm").read_text() == "hvdrank-pmix\n"]
        guards = [pid for pid in below if pid not in servers]
        asleep = [rank for guard in guards for rank in children(guard)]
        if len(asleep) == ranks and all(pathlib.Path(f"/proc/{p}/comm").read_text() == "sleep\n" for p in asleep):
            return {
                "hvdrun": [job.pid],
                "host daemon": daemons,
                "PMIx server": servers,
                "guard": guards,
                "rank (sleep)": asleep,
            }
        if job.poll() is not None:
            break
        time.sleep(0.05)
    sys.exit(f"the {ranks} ranks did not come up within {START_LIMIT_SECONDS:g} s")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/wheel")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    hvdrun = str((options.build / "launcher/hvdrun").resolve())
    job = subprocess.Popen([hvdrun, "-np", str(options.ranks), "--", "sleep", "600"], stdin=subprocess.DEVNULL)
    try:
        kinds = processes(job, options.ranks)
        time.sleep(2)  # remaining work of the start
        before = {pid: use(pid) for pids in kinds.values() for pid in pids}
        begin = time.monotonic()
        time.sleep(options.seconds)
        after = {pid: use(pid) for pid in before}
        seconds = time.monotonic() - begin
        memory = {pid: pss_bytes(pid) for pid in before}
    finally:
        job.terminate()
        job.wait(30)
    print(f"{options.ranks} ranks that sleep, {seconds:.0f} s")
    print(f"{'each':14} {'memory (PSS)':>14} {'wakes a second':>16} {'processor':>12}")
    for kind, pids in kinds.items():
        mib = sum(memory[pid] for pid in pids) / len(pids) / (1 << 20)
        wakes = sum(after[pid].wakes - before[pid].wakes for pid in pids) / len(pids) / seconds
        cpu = sum(after[pid].seconds - before[pid].seconds for pid in pids) / len(pids) / seconds
        print(f"{kind:14} {mib:10.2f} MiB {wakes:16.2f} {cpu:11.3%}")
    ours = sum(memory[pid] for pid in kinds["host daemon"] + kinds["PMIx server"] + kinds["guard"])
    print(f"daemon, PMIx server and guards for each rank: {ours / options.ranks / (1 << 20):.2f} MiB")


if __name__ == "__main__":
    main()
