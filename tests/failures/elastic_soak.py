"""Elastic jobs, each with a seeded fault, and what it has cost.

    PYTHONPATH=tests python tests/failures/elastic_soak.py --faults 30 --seed 0 [--ranks 16]

A row a job: the fault, seconds until a survivor went back to its last commit, until the next step was complete, steps
lost, and whether the samples and their sums are those of a run without faults.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from support import hvdrun

SCRIPT = pathlib.Path(__file__).with_name("elastic_counter.py")
SAMPLES = 320  # of 2 to 4 ranks; more have more, so that their jobs last as long
KINDS = ["kill", "kill", "kill two", "kill again", "term", "term the guard", "kill the guard", "stop", "stop and kill"]


@dataclasses.dataclass
class Row:
    """Of one job.  Times are -1 where nothing was to be noticed."""

    seed: int
    ranks: int
    fault: str
    noticed: float = -1
    next_step: float = -1
    lost: int = 0
    wrong: str = ""
    stderr: str = ""


def parent(pid: int) -> int:
    """0: it is gone."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def ranks_of(hvdrun_pid: int) -> list[int]:
    """Below daemon and guard of that hvdrun."""
    pids = sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit())
    return [pid for pid in pids if hvdrun_pid == parent(parent(parent(pid))) and parent(parent(pid)) != 0]


def send(pid: int, number: int) -> None:
    """Where it lives."""
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def give(kind: str, victims: list[int], dice: random.Random) -> None:
    """The fault."""
    first = victims[0]
    if kind == "kill two":
        victims = victims[:2]
        for pid in victims:
            send(pid, signal.SIGKILL)
    elif kind == "kill again":
        send(first, signal.SIGKILL)
        time.sleep(dice.uniform(0, 0.3))  # the others recover
        send(victims[-1], signal.SIGKILL)
    elif kind in ("term", "term the guard"):
        send(first if kind == "term" else parent(first), signal.SIGTERM)
    elif kind == "kill the guard":
        send(parent(first), signal.SIGKILL)
    elif kind.startswith("stop"):
        send(first, signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, 1))
        send(first, signal.SIGKILL if "kill" in kind else signal.SIGCONT)
    else:
        send(first, signal.SIGKILL)


def lines(path: pathlib.Path) -> list[list[str]]:
    """Words of what ranks have noted; without a line that is being written."""
    return [line.split() for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"] if path.exists() else []


def judge(out: str, samples: int = SAMPLES) -> str:
    """What is wrong with what rank 0 has printed; empty: nothing."""
    found = [line for line in out.splitlines() if '{"size"' in line]
    if len(found) != 1:
        return f"{len(found)} results"
    seen = json.loads(found[0][found[0].index("{") :])["seen"]
    return "" if sorted(seen) == list(range(samples)) else f"{len(seen)} samples, {len(set(seen))} different ones"


def measure(row: Row, folder: pathlib.Path, begun: float, ended: float) -> None:
    """From what the ranks have noted: the fault was between these moments."""
    steps = [(float(at), int(step)) for at, step, _ in lines(folder / "steps")]
    restored = [float(words[0]) for words in lines(folder / "restored") if float(words[0]) > begun]
    row.next_step = next((at for at, _ in steps if at > (restored[0] if restored else ended)), begun) - begun
    row.noticed = restored[0] - begun if restored else -1
    done = [step for at, step in steps if at <= (restored[0] if restored else begun)]
    after = [step for at, step in steps if at > (restored[0] if restored else begun)]
    row.lost = max(max(done, default=0) + 1 - min(after), 0) if after else 0  # a rank 0 that is killed notes no step


def one_job(seed: int, folder: pathlib.Path, kind: str = "", ranks: int = 0) -> Row:
    """One job with one fault, of 2 to 4 ranks without `ranks`; one rank that has the state is spared."""
    dice = random.Random(seed)
    row = Row(seed, dice.choice([2, 3, 4]), kind or dice.choice(KINDS))
    row.ranks = ranks or row.ranks
    samples = SAMPLES * max(row.ranks // 4, 1)
    env = {"ELASTIC_FOLDER": str(folder), "ELASTIC_PAUSE": "0.02", "ELASTIC_SAMPLES": str(samples)}
    with hvdrun.started("-np", str(row.ranks), "--min-np", "1", "--python", sys.executable, str(SCRIPT), env=env) as process:
        hvdrun.wait_until(lambda: len(lines(folder / "steps")) > 2 or process.poll() is not None, "steps", 120)
        victims = ranks_of(process.pid)
        victims.remove(dice.choice(victims))
        dice.shuffle(victims)
        time.sleep(dice.uniform(0, 0.3))
        begun = time.monotonic()
        give(row.fault, victims, dice)
        ended = time.monotonic()
        try:
            out, row.stderr = process.communicate(timeout=120)
            row.wrong = f"exit code {process.returncode}" if process.returncode else judge(out, samples)
        except subprocess.TimeoutExpired:
            row.wrong = "it hangs"
    measure(row, folder, begun, ended)
    return row


def show(row: Row) -> None:
    """As a line of the table."""
    noticed = "-" if row.noticed < 0 else f"{row.noticed:.3f} s"
    words: list[Any] = [row.seed, row.ranks, row.fault, noticed, f"{row.next_step:.3f} s", row.lost, row.wrong or "exact"]
    print("{:>5} {:>6}  {:15} {:>9} {:>10} {:>5}  {}".format(*words), flush=True)


def main() -> None:
    """Prints the table; exit code 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the first job")
    parser.add_argument("--kind", default="", choices=["", *KINDS])
    parser.add_argument("--ranks", type=int, default=0, help="2 to 4 without it")
    options = parser.parse_args()
    print(" seed  ranks  fault             noticed  next step  lost  samples")
    rows = []
    for seed in range(options.seed, options.seed + options.faults):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(one_job(seed, pathlib.Path(folder), options.kind, options.ranks))
        show(rows[-1])
        if rows[-1].wrong:
            print(rows[-1].stderr, file=sys.stderr, flush=True)
    failed = sum(bool(row.wrong) for row in rows)
    print(f"{len(rows) - failed} of {len(rows)} went on as if nothing had been")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
