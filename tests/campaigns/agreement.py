"""Counts false reports of --agreement: ranks that are equal train for many steps, and no line may appear.

    tests/campaigns/run agreement --steps 100000 [--only NAME] [--ranks 2 4]

Each kind of job runs with windows that rotate and with --agreement-steps 1, on each number of ranks.  The kinds: torch's
DistributedOptimizer with BatchNorm, checkpoints, a layer that is frozen for a while, and joins; DDP and FSDP2 over "hvd";
NumPy; and an elastic job whose ranks die and are replaced.  --progress shows rank 0's lines.  A job with
NumPy makes --steps steps, the others a tenth.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time

from campaigns.engine import Campaign, Outcome, Trial
from support import hvdrun

SCRIPT = pathlib.Path(__file__).resolve().parent / "equal_rank.py"
KINDS = ("numpy", "horovod", "ddp", "fsdp2", "elastic")
WAIT = re.compile(r"waited \d+ s")
MODES = {"rotating": [], "full": ["--agreement-steps", "1"]}


def name_of(kind: str, mode: str, ranks: int) -> str:
    return f"{kind}, {mode}, {ranks} ranks"


def trials(options: argparse.Namespace) -> list[Trial]:
    """Each kind, in each mode, on each number of ranks."""
    names = [name_of(kind, mode, ranks) for kind in KINDS for mode in MODES for ranks in options.ranks]
    return [Trial(name, options.first) for name in names if not options.only or options.only in name]


def stacks_of_a_hang(job: subprocess.Popen[str], errors: pathlib.Path, found: list[str]) -> None:
    """Appends the output of `hvdrun stacks` to `found`, ten seconds after hvdrun has reported the first wait."""
    while job.poll() is None and not WAIT.search(errors.read_text()):
        time.sleep(1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        job.wait(10)
    for option in ([], ["--ops"]) if job.poll() is None else ():
        argv = [hvdrun.program(), "stacks", *option, str(job.pid)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        found.append(done.stdout + done.stderr)


def judge(trial: Trial, _: None, options: argparse.Namespace) -> list[Outcome]:
    """One job. The outcome is right if the job succeeds and prints no report of --agreement."""
    kind, mode, words = trial.case.split(", ")
    ranks, begun = int(words.split()[0]), time.monotonic()
    steps = options.steps if kind == "numpy" else -(-options.steps // 10)
    argv = ["-np", str(ranks), "--agreement", "report", *MODES[mode], "--stall-check-shutdown-time-seconds", "180"]
    if kind == "elastic":
        argv += ["--min-np", "1", "--max-np", str(ranks), "--spares", "1", "--blacklist-cooldown-range", "0", "0"]
    with tempfile.TemporaryDirectory(prefix="hvd-equal-") as folder, open(f"{folder}/errors", "w+") as errors:
        job = subprocess.Popen(
            [hvdrun.program(), *argv, *hvdrun.python_args(), str(SCRIPT), kind, str(steps), str(trial.seed)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=hvdrun.environment(EQUAL_FOLDER=folder, EQUAL_DIE_EVERY=str(options.die_every), EQUAL_RANKS=str(ranks)),
        )
        stacks: list[str] = []
        watch = threading.Thread(target=stacks_of_a_hang, args=(job, pathlib.Path(errors.name), stacks))
        watch.start()
        with job:
            for line in job.stdout or ():
                if options.progress:
                    print(f"         {trial.case}: {line.rstrip()}", flush=True)
        watch.join()
        errors.seek(0)
        text = errors.read()
    reports = [line for line in text.splitlines() if "agreement: " in line]
    worlds = len(re.findall(r"^hvdrun: epoch \d+: ", text, re.MULTILINE))
    figures = {"steps": float(steps), "steps/s": steps / (time.monotonic() - begun)}
    if kind == "elastic":
        figures["changes"] = float(worlds)
    right = job.returncode == 0 and not reports
    wrong = [f"exit code {job.returncode}", *reports, text[-2000:], *stacks]
    about = f"load {os.getloadavg()[0]:.0f}" if right else "\n".join(wrong)
    return [Outcome(*trial, right=right, about=about, figures=figures)]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=10_000, help="of a job with NumPy; the others make a tenth")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--die-every", type=int, default=2_000, help="of an elastic job: the steps for each death")
    parser.add_argument("--only", help="cases whose name has this in it")
    parser.add_argument("--progress", action="store_true", help="shows the lines of progress")


CAMPAIGN = Campaign(__doc__, trials, judge, add_options)
