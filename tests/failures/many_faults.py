"""Elastic jobs with many seeded faults each, and what each fault has cost.

    python tests/failures/many_faults.py --faults 100 --seed 0 [--side 2] [--hosts] [--kind KIND]

A job has some 15 faults, one after the other: also while ranks recover from the one before, at each step of a recovery.  In
the end its losses and weights must be bit by bit those of a run without faults, each sample must have come as often as there,
and nothing may be left behind.  A row a fault: seconds until a survivor went back to its last commit, until the next step
was complete, steps lost.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from failures import fault_kinds, fault_training
from failures.fault_job import FaultJob, Here, Hosts
from netns.cluster import Cluster, why_not

FAULTS_A_JOB = 15
MOST_DESCRIPTORS, MOST_THREADS, MOST_MAPPED = 40, 16, 60  # of a rank at the end, however many faults there were
MOST_OPENED = 60  # descriptors of hvdrun then


@dataclasses.dataclass
class Outcome:
    """Of one job."""

    seed: int
    about: str
    rows: list[fault_kinds.Row] = dataclasses.field(default_factory=list)
    held: str = ""
    wrong: str = ""
    stderr: str = ""

    def faults(self) -> int:
        return sum(row.faults for row in self.rows)


def options_of(dice: random.Random, place: Here | Hosts, kept: bool) -> tuple[list[str], int, str]:
    """hvdrun's options, ranks, and a word about it."""
    ranks = 4 if len(place.hosts) > 1 else dice.choice([3, 4])
    least, spares = dice.choice([1, 1, 2]), dice.choice([0, 0, 1])
    words = ["-np", str(ranks), "--min-np", str(least), "--max-np", str(ranks), "--spares", str(spares)]
    words += ["--host-discovery-script", f"{place.inside}/discover", "--blacklist-cooldown-range", "0", "0"]
    words += ["--start-timeout", "30"]
    if kept:
        words += ["--state-dir", f"{place.inside}/state"]
    return words, ranks, f"{ranks} ranks, --min-np {least}, --spares {spares}{', --state-dir' if kept else ''}"


def check(job: FaultJob, ranks: int) -> str:
    """What is held at the end.  AssertionError where the job does not end as one without faults."""
    opened = len(os.listdir(f"/proc/{job.hvdrun()}/fd"))
    result = job.finish()
    errors = re.findall(r"^\[\d+ \S+\] ([\w.]*(?:Error|Interrupt|Exception)\b.*)", job.stderr(), re.MULTILINE)
    assert all(fault_kinds.NO_MEMORY in error for error in errors), f"a rank has ended by itself: {errors}"
    assert job.stderr().count("Traceback") == len(errors), "a rank has ended by itself"
    wanted = fault_training.summary(fault_training.course_of(result["step"], ranks))
    for name, value in wanted.items():
        assert result[name] == value, f"{name} is not that of a run without faults: {result[name]}, {value}"
    assert result["size"] == ranks, result["size"]
    for name, most in (("descriptors", MOST_DESCRIPTORS), ("threads", MOST_THREADS), ("shared", MOST_MAPPED)):
        assert result[name] <= most, f"rank 0 holds {result[name]} {name}"
    assert opened <= MOST_OPENED, f"hvdrun has {opened} descriptors"
    job.nothing_is_left()
    return (
        f"(rank 0: {result['descriptors']} descriptors, {result['threads']} threads, {result['shared']} maps; hvdrun: {opened})"
    )


def one_job(seed: int, place: Here | Hosts, number: int, kind: str = "") -> Outcome:
    """A job with so many faults, or a few more."""
    dice = random.Random(seed)
    kept = isinstance(place, Here) and (dice.random() < 0.3 or kind in fault_kinds.NEED_A_FILE)
    commit = dice.choice([1, 1, 2, 3])
    options, ranks, about = options_of(dice, place, kept)
    outcome = Outcome(seed, f"{about}, commit every {commit}")
    fault_kinds.discover(place, fault_kinds.all_hosts(place))
    job = FaultJob(place, options, FAULTS_COMMIT=str(commit))
    faults = fault_kinds.Faults(job, dice, ranks, commit, kept)
    try:
        job.wait_for_step(0, lambda workers: len(workers) == ranks, "the first step")
        while outcome.faults() < number:
            outcome.rows.append(faults.give(kind))
        job.wait_for_step(time.monotonic(), lambda workers: len(workers) == ranks, f"a step of {ranks} ranks at the end")
        outcome.held = check(job, ranks)
    except Exception as error:
        outcome.wrong = f"{faults.now or 'at the end'}: {type(error).__name__}: {error}; steps {job.steps()[-3:]}"
    finally:
        job.end()
        outcome.stderr = job.stderr()
    return outcome


def show(outcome: Outcome) -> str:
    """A job's rows."""
    text = [f"seed {outcome.seed}: {outcome.about}: {outcome.wrong or 'exact'} {outcome.held}"]
    return "\n".join([*text, *(f"    {row}" for row in outcome.rows)])


def table(outcomes: list[Outcome]) -> str:
    """Medians, and the longest, for each kind of fault."""
    kinds: dict[str, list[fault_kinds.Row]] = {}
    for row in (row for outcome in outcomes for row in outcome.rows):
        kinds.setdefault(row.kind, []).append(row)

    def seconds(values: list[float]) -> str:
        there = [value for value in values if value >= 0]
        return f"{statistics.median(there):7.3f} {max(there):7.3f} s" if there else f"{'-':>17}"

    text = [f"{'fault':44} times  {'noticed: median, most':>21}  {'next step: median, most':>23}  steps lost"]
    for kind, rows in sorted(kinds.items()):
        noticed, after = seconds([row.noticed for row in rows]), seconds([row.next_step for row in rows])
        text.append(f"{kind:44} {len(rows):5}  {noticed:>21}  {after:>23}  {max(row.lost for row in rows):10}")
    failed = sum(bool(outcome.wrong) for outcome in outcomes)
    total = sum(outcome.faults() for outcome in outcomes)
    text.append(f"{total} faults in {len(outcomes)} jobs, of which {len(outcomes) - failed} ended as one without faults")
    return "\n".join(text)


def campaign(seed: int, faults: int, side: int = 2, on_hosts: bool = False, kind: str = "", say: bool = False) -> list[Outcome]:
    """So many faults, in jobs with the seeds from that on; some jobs side by side."""

    def job_of(number: int) -> Outcome:
        how_many = min(FAULTS_A_JOB, faults - number * FAULTS_A_JOB)
        if on_hosts:
            with Cluster(hosts=3) as cluster:
                outcome = one_job(seed + number, Hosts(cluster), how_many, kind)
        else:
            with tempfile.TemporaryDirectory(prefix="hvd-faults-") as folder:
                outcome = one_job(seed + number, Here(pathlib.Path(folder)), how_many, kind)
        if say:
            print(show(outcome), flush=True)
        if say and outcome.wrong:
            print(outcome.stderr, file=sys.stderr, flush=True)
        return outcome

    with concurrent.futures.ThreadPoolExecutor(side) as pool:
        return list(pool.map(job_of, range(-(-faults // FAULTS_A_JOB))))


def main() -> int:
    """Prints rows and table; 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first job; the next one has the next seed")
    parser.add_argument("--side", type=int, default=2, help="jobs side by side")
    parser.add_argument("--hosts", action="store_true", help="over three hosts of their own namespaces")
    parser.add_argument("--kind", default="", choices=["", *fault_kinds.KINDS])
    options = parser.parse_args()
    if options.hosts and (reason := why_not()):
        print(reason)
        return 0
    outcomes = campaign(options.seed, options.faults, options.side, options.hosts, options.kind, say=True)
    print(table(outcomes))
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
