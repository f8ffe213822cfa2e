"""Plants hangs of torch's own collectives over gloo in a rank, by seed; checks that rank, collective and line are named.

    tests/campaigns/run hangs [--seeds 1] [--only CASE] [--healthy 3] [--python PYTHON] [--hosts 2] [--elastic]
    PLANTED_BACKEND=hvd tests/campaigns/run hangs    # over the backend "hvd"
    PLANTED_BACKEND=nccl tests/campaigns/run hangs   # on a GPU that two ranks can share

No program of these jobs imports hvd.  The time counts from the first wait to hvdrun's line about it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from campaigns.engine import Campaign, Outcome, Trial
from netns.cluster import Cluster, why_not
from support import hvdrun

SCRIPT = pathlib.Path(__file__).resolve().parent / "planted_hang_job.py"
HEALTHY_SCRIPT = SCRIPT.with_name("planted_healthy_job.py")
SIZE = 2
LIMIT_SECONDS = 120.0
MOST_SECONDS = 10.0  # from the beginning of the wait
MOST_QUEUED_SECONDS = 25.0  # the same if all ranks have enqueued a collective on GPUs, which may still compute


@dataclass
class Case:
    """A pattern of hvdrun's line about the hang.  @: the culprit's place; #: the culprit's rank; %: the other rank."""

    says: str
    alike: bool = False  # this case resembles another one, and runs in the long form only


MISSING = r"^hvdrun: rank # on \w+ is in @[^;]*; 1 rank has waited (\d+) s "
CASES: dict[str, Case] = {
    "skips": Case(MISSING + r"for all_reduce 20 of the default group"),
    "order": Case(
        r"^hvdrun: the ranks differ at collective 6 of the default group: .*barrier at @.* on rank #; .*waited (\d+) s"
    ),
    "groups": Case(MISSING + "for all_reduce 1 of group first"),
    "swallowed": Case(MISSING + r"for all_reduce 6 of the default group \(\[5\] float32\)"),
    "loader": Case(
        r"^hvdrun: rank # on \w+ is in @[^;]*, waiting for a DataLoader worker, which is in planted_hang_job.py:\d+ "
        r"\(__getitem__\); 1 rank has waited (\d+) s for all_reduce 6"
    ),
    "barrier": Case(MISSING + "for barrier 6 of the default group"),
    "subgroup": Case(MISSING + "for broadcast 2 of group workers"),
    "evaluation": Case(MISSING + r"for all_reduce 6 of the default group \(\[7\] float32\)"),
    "initless": Case(MISSING + r"in init_process_group\(\)"),
    "import": Case(MISSING + r"in init_process_group\(\)"),
    "rankless": Case(
        r"^hvdrun: 2 ranks have waited (\d+) s in init_process_group\(\)\n +ranks 0-1 are at @\n(.*\n)? +none of them has RANK"
    ),
    "port": Case(
        r"^hvdrun: 2 ranks have waited (\d+) s in init_process_group\(\)\n(.*\n)* +rank 1 cannot connect to 127.0.0.1:1: "
    ),
    "crossed": Case(MISSING + "for recv from rank #"),
    "asks": Case(MISSING + "for all_reduce 6"),
    "spins": Case(MISSING + "for all_gather 6"),
    "model": Case(MISSING + r"for all_reduce \d+ of the default group \(\[72\] float32\)"),
    "newgroup": Case(MISSING + "for new_group"),
    "objects": Case(MISSING + "for all_gather 6"),
    "collate": Case(MISSING + r"for all_reduce 4 of the default group"),
    "branch": Case(MISSING + r"for all_reduce 5 of the default group \(\[\] float32\)"),
    "checkpoint": Case(MISSING + "for barrier 6"),
    "locked": Case(MISSING + r"for all_reduce 6 of the default group \(\[3\] float32\)"),
    "child": Case(MISSING + r"for all_reduce 6 of the default group \(\[12\] float32\)"),
    "listens": Case(MISSING + "for broadcast 6"),
    "sends": Case(MISSING + "for recv from rank #"),
    "reduces": Case(MISSING + "for reduce 6"),
    "scatters": Case(MISSING + "for scatter 6"),
    "gathers": Case(MISSING + "for gather 6"),
    "asynchronous": Case(MISSING + r"for all_reduce 6 of the default group \(\[21\] float32\)"),
    "buffers": Case(MISSING + r"for (broadcast|all_reduce) \d+ of the default group"),
    "constructs": Case(MISSING + "for all_gather 6"),
    "monitored": Case(MISSING + "for (?:monitored_barrier|recv|barrier)"),
    "destroys": Case(MISSING + r"for all_reduce 6 of the default group \(\[31\] float32\)"),
    "pool": Case(MISSING + r"for all_reduce 6 of the default group \(\[13\] float32\)"),
    "stopped": Case(r"^hvdrun: rank # on \w+ is stopped[^;]*; 1 rank has waited (\d+) s for all_reduce 6"),
    "computes": Case(MISSING + r"for all_reduce 6 of the default group \(\[15\] float32\)"),
    "world": Case(
        r"^hvdrun: .*waited (\d+) s (?:in init_process_group\(\)|for all_reduce 1 .*)\n"
        r"(.*\n)* +WORLD_SIZE is (?:2 on rank %, 3 on|3, but) "
    ),
    "address": Case(r"^hvdrun: .*waited (\d+) s in init_process_group\(\)\n(.*\n)* +MASTER_ADDR:MASTER_PORT is "),
}
DIFFER = r"^hvdrun: the ranks differ at collective 6 of the default group: "
CASES |= {
    "sources": Case(DIFFER + r"broadcast .* from rank 0 at @ on rank 1; .* from rank 1 at @ on rank 0; .*waited (\d+) s"),
    "destinations": Case(DIFFER + r"reduce .* to rank 0 at @ on rank 0; .* to rank 1 at @ on rank 1; .*waited (\d+) s"),
    "handles": Case(
        r"^hvdrun: 2 ranks have waited (\d+) s for broadcast 6 .* have submitted it\n +ranks 0-1 are at @\n +.*src="
    ),
}
STUCK_ON_GPUS = r"^hvdrun: 2 ranks have waited (\d+) s for {} 6 .* have submitted it\n(.*\n)? +.*{}="
OVER_NCCL = {  # which returns at once where gloo waits; the rank then waits at the end of the job
    "order": DIFFER + r".*barrier on rank #; .*waited (\d+) s",
    "crossed": r"^hvdrun: rank # on \w+ is in planted_hang_job.py:\d+ \(main\); 1 rank has waited (\d+) s for recv from rank #",
    "groups": MISSING + "for all_reduce of group first",
    "subgroup": MISSING + "for (?:broadcast of group workers|destroy_process_group)",
    "newgroup": MISSING + "for (?:new_group|destroy_process_group)",
    "listens": MISSING + "for (?:broadcast 6|destroy_process_group)",
    "reduces": MISSING + "for (?:reduce 6|destroy_process_group)",
    "scatters": MISSING + "for scatter",
    "gathers": MISSING + "for gather",
    "sources": STUCK_ON_GPUS.format("broadcast", "src"),
    "destinations": STUCK_ON_GPUS.format("reduce", "dst"),
    "handles": STUCK_ON_GPUS.format("broadcast", "src"),
}
BACKEND = os.environ.get("PLANTED_BACKEND", "gloo")  # of the jobs, too: gloo, hvd, or nccl (see tests/gpu/test_hangs.py)
HEALTHY = ["long", "short", "end", "evaluation", "checkpoint", "compile", "loader", "model", "pairs", "uneven"]
if BACKEND == "nccl":
    HEALTHY[HEALTHY.index("loader")] = "queued"  # a forked worker cannot use the GPU
BLAMELESS = re.compile(
    r"which ends by itself; | does not hang: |: ranks? \S+( on \S+)? go(es)? on after |^        rank "
)  # lines that name a rank without blaming it


# Cases that a backend does not have.  Over "hvd": calls that differ are errors, not hangs; the others have no group of torch's
# to wait in; new_group() does not wait.  Over NCCL: the cases before the first group do not depend on the backend; a
# DataLoader makes its tensors on the CPU; gloo alone has monitored_barrier().
LEFT_OUT = {
    "hvd": "newgroup order groups sources destinations handles port world address rankless monitored",
    "nccl": "initless import port world address rankless loader collate monitored",
}.get(BACKEND, "").split()
KINDS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce": "allreduce",
    "scatter": "alltoall",
    "gather": "allgather",
}


def over_hvd(says: str) -> str:
    """Returns the pattern `says` for the backend "hvd". Its messages have the kind of an operation after the name, in
    parentheses."""

    def named(found: re.Match[str]) -> str:
        kinds = {found[1], KINDS.get(found[1], found[1]), "alltoall", "allgather", "broadcast"}
        # . is a number sign, which stands for the culprit here
        return rf"for c10d\S* .\d+ \((?:{'|'.join(sorted(kinds))})"

    says = says.replace("for (broadcast|all_reduce)", "for broadcast")
    says = says.replace("for recv from rank #", "for c10d[^ ]*/send # to % tag 0")  # a message has its direction in its name
    return re.sub(r"for (\w+) (?:\d+|\\d\+)(?: of the default group| of group \w+)?.*", named, says)


def line_of(case: str) -> int:
    """Returns the line number of the mark "# here: CASE" in the script; 0: no mark."""
    for number, line in enumerate((SCRIPT if case in CASES else HEALTHY_SCRIPT).read_text().splitlines(), 1):
        if line.endswith(f"  # here: {case}"):
            return number
    return 0


@contextlib.contextmanager
def started(args: list[str], hosts: Cluster | None) -> Iterator[subprocess.Popen[str]]:
    """The job on this machine, or with a rank on each host."""
    if hosts is None:
        with hvdrun.started("-np", str(SIZE), *args) as job:
            yield job
        return
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    argv = [hvdrun.program(), "-H", ",".join(f"{host}:1" for host in hosts.names), *args]
    job = hosts.popen("alpha", argv, **pipes)
    try:
        yield job
    finally:
        hosts.signal(job, signal.SIGINT)
        job.communicate(timeout=30)


def one(
    case: str, culprit: int, python: str = sys.executable, more: tuple[str, ...] = (), hosts: Cluster | None = None
) -> Outcome:
    """Runs the job until hvdrun has reported the hang, or until the job ends."""
    told = CASES[case].says if case in CASES else ""
    if BACKEND == "hvd":
        told = over_hvd(told)
    if BACKEND == "nccl":
        told = OVER_NCCL.get(case, told)
    place = rf"planted_hang_job.py:{line_of(case)}(?: \(\w+\))?"
    pattern = told.replace("#", str(culprit)).replace("@", place).replace("%", str(1 - culprit))
    text: list[str] = []
    began = time.monotonic()
    args = [*more, python, str(SCRIPT if case in CASES else HEALTHY_SCRIPT), case, str(culprit)]
    with started(args, hosts) as job:
        # Several imports of torch at once take minutes on a busy machine.
        killer = threading.Timer(LIMIT_SECONDS * min(3, hvdrun.patience()), job.send_signal, [signal.SIGINT])
        killer.start()
        found = None
        while found is None and (line := hvdrun.next_line(job.stderr)):
            text.append(line)
            found = re.search(pattern, "".join(text), re.M) if told else None
        killer.cancel()
    said = "".join(line for line in text if line.startswith(("hvdrun: ", "        ")))
    if not told:
        blames = [line for line in said.splitlines() if not BLAMELESS.search(line)]
        return Outcome(case, culprit, not blames and job.returncode == 0, said)
    waited = float(found[1]) if found and found.re.groups and found[1] else 0.0
    figures = {"waited": waited, "since start": time.monotonic() - began}
    most = MOST_QUEUED_SECONDS if told.startswith(r"^hvdrun: 2 ranks") and BACKEND == "nccl" else MOST_SECONDS
    return Outcome(case, culprit, found is not None and waited <= most, said, figures=figures)


def trials(options: argparse.Namespace) -> list[Trial]:
    cases = [case for case in CASES if (not options.only or case in options.only) and case not in LEFT_OUT]
    planted = [Trial(case, seed) for seed in range(options.first, options.first + options.seeds) for case in cases]
    healthy = [Trial("healthy_" + HEALTHY[n % len(HEALTHY)], n) for n in range(options.healthy)] if not options.only else []
    return planted + healthy


def judge(trial: Trial, place: Any, options: argparse.Namespace) -> list[Outcome]:
    culprit = 1 if trial.case in ("port", "address") else random.Random(trial.seed).randrange(SIZE)
    more = ("--min-np", str(SIZE)) if options.elastic else ()
    with Cluster(hosts=SIZE) if options.hosts else contextlib.nullcontext() as hosts:
        outcome = one(trial.case, culprit, options.python, more, hosts)
    outcome.seed = trial.seed
    return [outcome]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, help="each case so often")
    parser.add_argument("--only", action="append", help="this case; may be given again")
    parser.add_argument("--python", default=sys.executable, help="the ranks' Python: that of another torch")
    parser.add_argument("--hosts", type=int, default=0, choices=[0, SIZE], help="so many, with a rank each")
    parser.add_argument("--elastic", action="store_true", help="elastic jobs, whose scripts use gloo only")
    parser.add_argument("--healthy", type=int, default=3, help="so many jobs that are well: nobody may be named")


CAMPAIGN = Campaign(
    __doc__ or "", trials, judge, add_options, why_not=lambda options: (why_not() or "") if options.hosts else ""
)
