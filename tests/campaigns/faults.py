"""Elastic jobs with many seeded faults each, and the cost of each fault.

    tests/campaigns/run faults --faults 100 --first 0 [--side 2] [--hosts] [--kind KIND]

A job has some 15 faults, one after the other, some of them while ranks recover from the previous one, at each step of a
recovery.  At the end its losses and weights must be bitwise those of a run without faults.  Each sample must have been used
equally often, and no process or file may be left.  The table has a row for each fault: seconds until a survivor restored its
last commit, seconds until the next step was complete, lost steps.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import re
import tempfile
import time
from collections.abc import Iterator

from campaigns import fault_kinds, fault_training
from campaigns.engine import Campaign, Outcome, Trial
from campaigns.fault_job import FaultJob, Here, Hosts
from netns.cluster import Cluster, why_not

FAULTS_A_JOB = 15
MOST_DESCRIPTORS, MOST_THREADS, MOST_MAPPED = 40, 16, 60  # of a rank at the end, for any number of faults
MOST_OPENED = 60  # descriptors of hvdrun at the end


JOB = "the whole job"  # the row with the job's state at the end


def job_options(dice: random.Random, place: Here | Hosts, kept: bool) -> tuple[list[str], int, str]:
    """hvdrun's options, the number of ranks, and a description."""
    ranks = 4 if len(place.hosts) > 1 else dice.choice([3, 4])
    least, spares = dice.choice([1, 1, 2]), dice.choice([0, 0, 1])
    words = ["-np", str(ranks), "--min-np", str(least), "--max-np", str(ranks), "--spares", str(spares)]
    words += ["--host-discovery-script", f"{place.inside}/discover", "--blacklist-cooldown-range", "0", "0"]
    words += ["--start-timeout", "30"]
    if kept:
        words += ["--state-dir", f"{place.inside}/state"]
    return words, ranks, f"{ranks} ranks, --min-np {least}, --spares {spares}{', --state-dir' if kept else ''}"


def check(job: FaultJob, ranks: int) -> str:
    """Checks the job at its end.  AssertionError if it differs from a job without faults."""
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


def one_job(seed: int, place: Here | Hosts, number: int, kind: str = "") -> list[Outcome]:
    """A job with `number` faults, or a few more: an outcome for each, and for the job at its end."""
    dice = random.Random(seed)
    kept = isinstance(place, Here) and (dice.random() < 0.3 or kind in fault_kinds.NEED_A_FILE)
    commit = dice.choice([1, 1, 2, 3])
    options, ranks, about = job_options(dice, place, kept)
    about += f", commit every {commit}"
    fault_kinds.discover(place, fault_kinds.all_hosts(place))
    job = FaultJob(place, options, FAULTS_COMMIT=str(commit))
    faults = fault_kinds.Faults(job, dice, ranks, commit, kept)
    rows: list[Outcome] = []
    try:
        job.wait_for_step(0, lambda workers: len(workers) == ranks, "the first step")
        while sum(row.faults for row in rows) < number:
            rows.append(outcome_of(seed, faults.give(kind)))
        job.wait_for_step(time.monotonic(), lambda workers: len(workers) == ranks, f"a step of {ranks} ranks at the end")
        rows.append(Outcome(JOB, seed, True, f"{about}: exact {check(job, ranks)}", faults=0))
    except Exception as error:
        wrong = f"{faults.now or 'at the end'}: {type(error).__name__}: {error}; steps {job.steps()[-3:]}"
        rows.append(Outcome(JOB, seed, False, f"{about}: {wrong}\n{job.stderr()}", faults=0))
    finally:
        job.end()
    return rows


def outcome_of(seed: int, row: fault_kinds.Row) -> Outcome:
    """The outcome of a fault after which the job continued."""
    times = {"noticed s": row.noticed, "next step s": row.next_step}
    figures = {name: value for name, value in times.items() if value >= 0} | {"steps lost": float(row.lost)}
    return Outcome(row.kind, seed, True, figures=figures, faults=row.faults)


@contextlib.contextmanager
def place_of(options: argparse.Namespace) -> Iterator[Here | Hosts]:
    """The place for one job."""
    if options.hosts:
        with Cluster(hosts=3) as cluster:
            yield Hosts(cluster)
    else:
        with tempfile.TemporaryDirectory(prefix="hvd-faults-") as folder:
            yield Here(pathlib.Path(folder))


def trials(options: argparse.Namespace) -> list[Trial]:
    """A job for each FAULTS_A_JOB faults."""
    return [Trial(JOB, options.first + number) for number in range(-(-options.faults // FAULTS_A_JOB))]


def judge(trial: Trial, _: None, options: argparse.Namespace) -> list[Outcome]:
    """Runs one job; the last job has the rest of the faults."""
    number = min(FAULTS_A_JOB, options.faults - (trial.seed - options.first) * FAULTS_A_JOB)
    with place_of(options) as place:
        return one_job(trial.seed, place, number, options.kind)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--hosts", action="store_true", help="over three hosts of their own namespaces")
    parser.add_argument("--kind", default="", choices=["", *fault_kinds.KINDS])


CAMPAIGN = Campaign(
    __doc__, trials, judge, add_options, why_not=lambda options: (why_not() or "") if options.hosts else "", side=2
)
