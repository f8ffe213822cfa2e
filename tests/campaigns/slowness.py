"""Checks that the report names a planted cause: real jobs, one cause each, and clean ones.

    tests/campaigns/run slowness --ranks 2 --rounds 1 --steps 200 --clean 20 [--unseen] [--backend gloo] [--hosts 3]

With fewer cores than ranks, ranks lack cores whatever is planted. --on-a-device is for such machines.

Uses the results of scripts/setup --tests: hvdrun and the ranks' interpreter of .venv, TensorFlow's of .cache/tensorflow. On a
busy machine the report on a clean run may say that cores are missing, which is true then, but it must blame no rank.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from campaigns.engine import Campaign, Outcome, Trial
from netns.cluster import Cluster, why_not
from support import hvdrun

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LEFT_OUT = 77  # planted_machine.py


class Cause(NamedTuple):
    """A planted cause, and the expected report."""

    what: str
    said: str
    everywhere: bool = False  # on all ranks; otherwise on the last
    words: str = ""  # expected in the cause's text or advice
    steps: int = 1  # multiple of --steps
    job: str = "planted_job.py"
    card: str = ""  # on several hosts: the queueing discipline of the first host's network interface

    def name(self) -> str:
        """The row of the table."""
        kind = {NUMPY: ", NumPy", JAX: ", JAX"}.get(self.job, "")
        return f"{self.what}, {'all ranks' if self.everywhere else 'the last rank'}{kind}"


KERAS, NUMPY, JAX = "planted_keras_job.py", "planted_numpy_job.py", "planted_jax_job.py"
NOTHING = Cause("nothing", "BALANCED", True)
CAUSES = [
    Cause("input sleeps", "INPUT"),
    Cause("input sleeps", "INPUT", True),
    Cause("input stalls now and then", "INPUT"),
    Cause("input computes", "INPUT"),
    Cause("a slow worker reads", "INPUT", True),
    Cause("twice the work", "STRAGGLER"),
    Cause("pause", "STRAGGLER"),
    Cause("pause, another rank each time", "COMPUTE", True),
    Cause("a neighbour on its core", "STRAGGLER"),
    Cause("neighbours on all cores", "COMPUTE", True, "core"),
    Cause("a processor limit", "STRAGGLER", words="throttled"),
    Cause("a processor limit", "COMPUTE", True, "throttled"),
    Cause("reads from storage", "STRAGGLER"),
    Cause("pages come from storage", "STRAGGLER"),
    Cause("a Python thread computes", "STRAGGLER"),
    Cause("torch.save", "CHECKPOINT"),
    Cause("torch.save", "CHECKPOINT", True),
    Cause("np.save", "CHECKPOINT"),
    Cause("evaluation now and then", "STRAGGLER"),
    Cause("twice the work", "STRAGGLER", job=NUMPY),
    Cause("pause", "STRAGGLER", job=NUMPY),
    Cause("np.save", "CHECKPOINT", job=NUMPY),
    Cause("evaluation now and then", "STRAGGLER", job=NUMPY),
    Cause("all ranks on one core", "COMPUTE", True, "core", job=NUMPY),
    Cause("gc.collect()", "GC"),
    Cause("gc.collect()", "GC", True),
    Cause("1000 small operations", "COMMUNICATION", True),
    Cause("48 MB of data", "COMMUNICATION", True),
    Cause("tensors are kept", "MEMORY_CREEP", steps=6),  # memory is sampled four times a second
    Cause("tf.data: a map that sleeps", "INPUT", words="num_parallel_calls", job=KERAS),
    Cause("tf.data: a map that sleeps", "INPUT", True, "num_parallel_calls", job=KERAS),
    Cause("Keras: a callback that sleeps", "STRAGGLER", job=KERAS),
    Cause("Keras: a callback that sleeps", "COMPUTE", True, job=KERAS),
    Cause("input sleeps", "INPUT", job=JAX),
    Cause("input sleeps", "INPUT", True, job=JAX),
    Cause("twice the work", "STRAGGLER", job=JAX),
    Cause("pause", "STRAGGLER", job=JAX),
    Cause("other shapes now and then", "COMPILATION", job=JAX),
    Cause("other shapes now and then", "COMPILATION", True, job=JAX),
    Cause("np.save", "CHECKPOINT", job=JAX),
    NOTHING,
]

# Needs several hosts. With three hosts, the report names the first.
BETWEEN_HOSTS = [
    Cause(f"a card of {rate} Mbit/s", "COMMUNICATION", True, job=NUMPY, card=f"tbf rate {rate}mbit burst 256k latency 50ms")
    for rate in (50, 100, 200)
]

# Causes for which the rules were not written.
UNSEEN = [
    cause._replace(job="planted_unseen_job.py")
    for cause in (
        Cause("logs into a slow pipe", "STRAGGLER"),
        Cause("a lock that another process holds", "STRAGGLER"),
        Cause("fewer workers than the others", "INPUT"),
        Cause("a hook that sleeps", "STRAGGLER"),
        Cause("sorts a copy in NumPy", "STRAGGLER"),
        Cause("validation on one rank", "STRAGGLER"),
        Cause("augmentation that grows", "INPUT"),
        Cause("one core for all ranks", "COMPUTE", True, "core"),
        Cause("more passes than the others", "STRAGGLER"),
        Cause("pickles now and then", "STRAGGLER"),
        Cause("a pause of all", "COMPUTE", True),
        Cause("more threads than cores", "COMPUTE", True, "core"),
        Cause("a low priority, and a neighbour", "STRAGGLER"),
        Cause("work of random length", "COMPUTE", True),
        Cause("a log that goes to the disk each time", "STRAGGLER"),
        Cause("a generator of its own", "STRAGGLER"),
        Cause("allocates and frees", "STRAGGLER"),
    )
]


class Found(NamedTuple):
    """The report's first finding."""

    cause: str
    ranks: list[int]
    what: str
    advice: str
    others: list[str]  # the further causes


def interpreter(job: str) -> pathlib.Path:
    """The ranks' interpreter."""
    return ROOT / (".cache/tensorflow" if job in (KERAS, JAX) else ".venv") / "bin" / "python"


def launcher() -> str:
    """hvdrun: the installed one, unless HVD_BUILD_DIR names a build folder."""
    return hvdrun.program() if "HVD_BUILD_DIR" in os.environ else str(ROOT / ".venv/bin/hvdrun")


@contextlib.contextmanager
def cluster_of(options: argparse.Namespace, cause: Cause) -> Iterator[Cluster | None]:
    """The hosts of a job, if it wants several, with the cause's network interface."""
    if not options.hosts:
        yield None
        return
    with Cluster(hosts=options.hosts) as cluster:
        if cause.card:
            inside = ["nsenter", f"--target={cluster.init_pid('alpha')}", "--net"]
            subprocess.run([*inside, "tc", "qdisc", "add", "dev", "eth0", "root", *cause.card.split()], check=True, timeout=10)
        yield cluster


def run(cause: Cause, ranks: int, options: argparse.Namespace) -> Found | None:
    """Runs one job; None if the cause cannot be planted on this machine."""
    variables = {"PLANTED_BACKEND": options.backend, "OMP_NUM_THREADS": "1"}
    if options.package:
        variables["PYTHONPATH"] = options.package
    if options.on_a_device:
        variables["PLANTED_ON_A_DEVICE"] = "1"
    with tempfile.TemporaryDirectory() as folder, cluster_of(options, cause) as cluster:
        report = (cluster.tmp("alpha") if cluster else pathlib.Path(folder)) / "report.json"
        whom = "-1" if cause.everywhere else str(ranks - 1)
        job = [str(interpreter(cause.job)), str(HERE / cause.job), cause.what, whom, str(options.steps * cause.steps)]
        argv = [launcher(), "--no-report", "--report-filename"]
        if cluster:
            hosts = ",".join(f"{host}:1" for host in cluster.names)
            done = cluster.run("alpha", [*argv, "/tmp/report.json", "-H", hosts, *job], env=variables, timeout=600)
        else:
            words = [*argv, str(report), "-np", str(ranks), *job]
            done = subprocess.run(words, capture_output=True, text=True, timeout=600, env={**os.environ, **variables})
        if done.returncode == LEFT_OUT:
            return None
        if done.returncode != 0:
            raise RuntimeError(f"{cause.what}: {done.stderr}")
        findings = json.loads(report.read_text())["findings"]
        if not findings:
            return Found("none", [], "no finding", "", [])
        first = findings[0]
        others = [f["cause"] for f in findings[1:]]
        return Found(first["cause"], first["ranks"], first["what"], first["advice"], others)


def is_right(cause: Cause, found: Found, ranks: int) -> bool:
    """Returns whether the finding is right. On a busy machine the report may also say that the machine is busy."""
    wanted = [] if cause.everywhere else [ranks - 1]
    if cause.card and (ranks > 2 or found.ranks):  # the first host's network interface; of two hosts, either answer is right
        wanted = [0]
    if cause is NOTHING and found.cause == "COMPUTE" and "for a core" in found.what:
        return found.ranks == []
    told = found.ranks == wanted or cause.said == "MEMORY_CREEP"
    return found.cause == cause.said and told and cause.words in found.what + found.advice


def judge(trial: Trial, _: None, options: argparse.Namespace) -> list[Outcome]:
    """One job."""
    cause = next(cause for cause in [*CAUSES, *BETWEEN_HOSTS, *UNSEEN] if cause.name() == trial.case)
    ranks = options.hosts or options.ranks
    try:
        found = run(cause, ranks, options)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return [Outcome(*trial, right=False, about=f"load {os.getloadavg()[0]:.0f}: {error}")]
    if found is None:
        return [Outcome(*trial, right=True, skipped="cannot be planted on this machine")]
    about = f"{found.cause} {found.ranks} {found.what}" + (f"; and {' | '.join(found.others)}" if found.others else "")
    return [Outcome(*trial, right=is_right(cause, found, ranks), about=f"load {os.getloadavg()[0]:.0f}: {about}")]


def trials(options: argparse.Namespace) -> list[Trial]:
    """The causes, round by round, then the jobs without one."""
    table = UNSEEN if options.unseen else [*CAUSES, *BETWEEN_HOSTS] if options.hosts else CAUSES
    causes = [c for c in table if not options.only or options.only in c.what]
    planted = [Trial(cause.name(), turn) for turn in range(options.rounds) for cause in causes]
    return planted + [Trial(NOTHING.name(), options.rounds + number) for number in range(options.clean)]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--clean", type=int, default=0, help="so many jobs without a cause afterwards")
    parser.add_argument("--unseen", action="store_true", help="causes that the report's rules were not written for")
    parser.add_argument("--backend", default="hvd.torch", choices=["hvd.torch", "gloo", "hvd"], help="of the torch jobs")
    parser.add_argument("--hosts", type=int, default=0, choices=[0, 2, 3], help="so many, with a rank each")
    parser.add_argument("--on-a-device", action="store_true", help="a step's own work waits as for a GPU, and needs no core")
    parser.add_argument("--only", help="causes whose name has this in it")


CAMPAIGN = Campaign(__doc__, trials, judge, add_options, why_not=lambda options: (why_not() or "") if options.hosts else "")
