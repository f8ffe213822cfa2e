"""Plants thirty-odd causes of failure in jobs, in ranks that a seed chooses, and checks that rank and cause are named.

    tests/campaigns/run causes [--seeds 5] [--only CAUSE] [--healthy 200]

The verdict comes from hvdrun's record of the first cause (--results), from its own lines on stderr, and from the file of
--verdict-filename: its class of cause and its advice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from campaigns.engine import Campaign, Outcome, Trial
from support import hvdrun, verdicts

RANK_SCRIPT = pathlib.Path(__file__).resolve().parent / "planted_rank.py"
SIZE = 3
LIMIT_SECONDS = 60.0
V1 = pathlib.Path("/sys/fs/cgroup/memory")


@dataclass
class Plant:
    """The values that planted_rank.py draws from the same seed."""

    seed: int
    culprit: int = 0
    step: int = 0
    code: int = 0

    def __post_init__(self) -> None:
        choice = random.Random(self.seed)
        self.culprit, self.step, self.code = choice.randrange(SIZE), choice.randrange(3, 12), choice.randrange(1, 125)


@dataclass
class Said:
    """hvdrun's final output."""

    returncode: int
    stderr: str
    record: dict[str, object] | None
    verdict: dict[str, Any]


Judge = Callable[[Said, Plant], bool]


def died(cause: str, code: int | Callable[[Plant], int] | None, text: str = "") -> Judge:
    """The record has this rank, this cause and this code (None: any); `text` (a pattern) is somewhere in the output."""

    def judge(said: Said, plant: Plant) -> bool:
        wanted = code(plant) if callable(code) else code
        return (
            said.record is not None
            and (said.record["rank"], said.record["cause"]) == (plant.culprit, cause)
            and wanted in (None, said.record["code"])
            and re.search(rf"^hvdrun: rank {plant.culprit} on ", said.stderr, re.M) is not None
            and re.search(text, said.stderr, re.M) is not None
        )

    return judge


def raised(text: str) -> Judge:
    """An exception: its line is in the first one, and its traceback is shown once."""
    return died("exited", 1, rf"^hvdrun: rank \d on \w+ ended with exit code 1 \({text}")


def hangs(text: str) -> Judge:
    """The hang verdict names the rank and its activity."""
    return lambda said, plant: re.search(rf"^hvdrun: rank {plant.culprit} on \w+ {text}; ", said.stderr, re.M) is not None


def says(text: str, code: int) -> Judge:
    """No rank is to blame."""
    return lambda said, plant: said.returncode == code and re.search(text, said.stderr, re.M) is not None


@dataclass
class Case:
    """One cause."""

    right: Judge
    cause: str  # the verdict's class and advice
    advice: str
    hang: bool = False  # the campaign ends it after the verdict
    kills: str = ""  # process that the campaign kills: mpirun, daemon, watchdog, guard
    launcher: str = "hvdrun"  # program that starts the ranks
    needs: str = ""  # environment to make: group, inner group, shm, disk
    alike: bool = False  # resembles another case: in the long form only


CASES: dict[str, Case] = {
    "SIGKILL": Case(died("signalled", 9), "killed", "RESTART"),
    "SIGTERM": Case(died("signalled", 15), "killed", "RESTART", alike=True),
    "SIGUSR1": Case(died("signalled", 10), "killed", "RESTART", alike=True),
    "SIGFPE": Case(died("signalled", 8), "crash", "FIX_CODE"),
    "SIGILL": Case(died("signalled", 4), "crash", "FIX_CODE", alike=True),
    "interrupt": Case(died("signalled", 2, "KeyboardInterrupt"), "killed", "RESTART", alike=True),
    "segfault": Case(died("signalled", 11), "crash", "FIX_CODE"),
    "segfault in a thread": Case(died("signalled", 11), "crash", "FIX_CODE", alike=True),
    "stack overflow": Case(died("signalled", 11), "crash", "FIX_CODE"),
    "abort": Case(died("signalled", 6), "crash", "FIX_CODE", alike=True),
    "C++ exception": Case(died("signalled", 6, "what\\(\\): +planted"), "crash", "FIX_CODE"),
    "out of memory, cgroup": Case(died("oom", 9, "its cgroup may hold"), "out_of_memory", "MORE_MEMORY", needs="group"),
    "out of memory, kernel's log": Case(
        died("oom", 9, "out-of-memory killer"), "out_of_memory", "MORE_MEMORY", needs="inner group"
    ),
    "full /dev/shm": Case(died("signalled", 7, "/dev/shm is full"), "shared_memory_full", "MORE_MEMORY", needs="shm"),
    "sys.exit": Case(died("exited", lambda p: p.code), "exit_code", "FIX_CODE"),
    "sys.exit with text": Case(died("exited", 1, "planted"), "exit_code", "FIX_CODE", alike=True),
    "os._exit": Case(died("exited", lambda p: p.code), "exit_code", "FIX_CODE"),
    "exception": Case(raised("__main__.Planted: planted|Planted: planted"), "exception", "FIX_CODE", alike=True),
    "exception before init": Case(raised(".*Planted: planted"), "exception", "FIX_CODE"),
    "exception in a collective": Case(raised("\\w+Error: "), "exception", "FIX_CODE"),
    "exceptions in order": Case(raised(".*Planted: planted"), "exception", "FIX_CODE"),
    "import error": Case(raised("ModuleNotFoundError: No module named 'no_such_module_planted'"), "missing_module", "FIX_CODE"),
    "no descriptors": Case(raised("OSError: .*Too many open files"), "limit", "STOP"),
    "disk full": Case(raised("OSError: .*No space left on device"), "disk_full", "STOP", needs="disk"),
    "no address space": Case(raised(".*MemoryError: "), "out_of_memory", "MORE_MEMORY", alike=True),
    "processor time over": Case(died("signalled", 24), "limit", "STOP", alike=True),
    "child holds the pipes": Case(died("exited", lambda p: p.code), "exit_code", "FIX_CODE"),
    "stopped": Case(hangs(r"is stopped( at \S+:\d+ \(\S+\))? \(kill -CONT lets it go on\)"), "hang", "RESTART", hang=True),
    "loops": Case(hangs(r"is in planted_rank.py:\d+ \(spin\)"), "hang", "FIX_CODE", hang=True),
    "other branch": Case(hangs(r"is in planted_rank.py:\d+ \(other_branch\)"), "hang", "FIX_CODE", hang=True),
    "waits elsewhere": Case(hangs(r"is in planted_rank.py:\d+ \(nap\)"), "hang", "FIX_CODE", hang=True, alike=True),
    "ended early": Case(
        lambda s, p: f"hvdrun: rank {p.culprit} on localhost left the job while " in s.stderr, "left_early", "FIX_CODE"
    ),
    "mpirun killed": Case(
        says("^hvdrun: mpirun was killed by signal 9", 137), "launcher_lost", "RESTART", kills="mpirun", launcher="mpirun"
    ),
    "daemon killed": Case(
        says("^hvdrun: the host daemon was killed by signal 9", 137), "launcher_lost", "RESTART", kills="daemon"
    ),
    "watchdog killed": Case(
        died("vanished", None, "was killed"), "launcher_lost", "RESTART", kills="watchdog", launcher="mpirun"
    ),
    "guard killed": Case(
        died("vanished", None, "its guard ended without a message"), "launcher_lost", "RESTART", kills="guard"
    ),
}


def parent(pid: int) -> int:
    """The parent of a process."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Skip(Exception):
    """Raised when a cause cannot be planted on this machine. The message gives the reason."""


@contextlib.contextmanager
def memory_group(inner: bool) -> Iterator[tuple[list[str], dict[str, str]]]:
    """(command prefix, environment): a memory group of 300 MiB for the whole job, or for the rank that uses up memory."""
    if not (V1 / "memory.oom_control").exists() or not os.access(V1, os.W_OK):
        raise Skip("no memory cgroup (v1) that this user may make groups in")
    folder = V1 / f"hvd-test-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if (folder / name).exists():
                (folder / name).write_text(str(300 << 20))
        enter = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh"]
        yield ([], {"PLANTED_GROUP": str(folder)}) if inner else (enter, {})
    finally:
        for _ in range(200):
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.05)


@contextlib.contextmanager
def place(needs: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The environment of a case: words before hvdrun's command, variables."""
    if not needs:
        yield [], {}
    elif needs.endswith("group"):
        if needs == "inner group" and not os.access("/dev/kmsg", os.R_OK):
            raise Skip("the kernel's log cannot be read")
        with memory_group(needs == "inner group") as found:
            yield found
    else:
        if os.geteuid() != 0 or not shutil.which("unshare"):
            raise Skip("a small file system to fill needs root and unshare")
        with tempfile.TemporaryDirectory(prefix="hvd-planted-") as folder:
            where = "/dev/shm" if needs == "shm" else folder
            mount = f'mount -t tmpfs -o size=24m tmpfs {where} && exec "$@"'
            yield ["unshare", "--mount", "sh", "-c", mount, "sh"], {"PLANTED_DISK": where}


def read_record(path: pathlib.Path) -> dict[str, object] | None:
    """The first cause among the results."""
    data, at = path.read_bytes(), 0
    while at + 16 <= len(data):
        rank, _, length = struct.unpack_from("<IIQ", data, at)
        if rank == 0xFFFFFFFF:
            return dict(json.loads(data[at + 16 : at + 16 + length]))
        at += 16 + length
    return None


def kill_above(job: subprocess.Popen[str], whom: str, lines: list[str]) -> None:
    """Waits until the victim has written its process id, and kills an ancestor of the victim."""
    while line := hvdrun.read_line(job.stdout):
        lines.append(line)
        if found := re.search(r"victim (\d+)", line):
            guard = parent(int(found[1]))
            target = {"guard": guard, "daemon": parent(guard), "watchdog": parent(guard), "mpirun": parent(parent(guard))}[whom]
            os.kill(target, signal.SIGKILL)
            return


def wait_for_verdict(job: subprocess.Popen[str]) -> str:
    """Returns the output up to the hang verdict, which comes before any end; then interrupts the job."""
    text = ""
    while line := hvdrun.read_line(job.stderr):
        text += line
        if line.startswith("hvdrun: ") and not line.startswith(hvdrun.SLOW_START):
            break
    with contextlib.suppress(ProcessLookupError):
        job.send_signal(signal.SIGINT)
    return text


def run(cause: str, seed: int, package: str = "") -> tuple[bool, Said, Plant]:
    """Runs one job.  Raises Skip if this machine cannot host it."""
    case, plant = CASES[cause], Plant(seed)
    with place(case.needs) as (around, variables), tempfile.TemporaryDirectory(prefix="hvd-planted-") as folder:
        results = pathlib.Path(folder) / "results"
        results.touch(0o600)
        verdict = pathlib.Path(folder) / "verdict.json"
        options = [
            "--verdict-filename",
            str(verdict),
            "-np",
            str(SIZE),
            "--launcher",
            case.launcher,
            "--grace",
            "1",
            "--results",
            str(results),
            *hvdrun.python_args(),
        ]
        if case.hang:
            options += ["--stall-check-warning-time-seconds", str(max(2, round(hvdrun.patience())))]
        command = [*around, hvdrun.program(), *options, str(RANK_SCRIPT), cause, str(seed)]
        env = hvdrun.environment(**variables, **({"PYTHONPATH": package} if package else {}))
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        job = subprocess.Popen(command, text=True, cwd=folder, env=env, **pipes)  # type: ignore[call-overload]
        lines: list[str] = []
        try:
            text = wait_for_verdict(job) if case.hang else ""
            if case.kills:
                kill_above(job, case.kills, lines)
            _, rest = job.communicate(timeout=LIMIT_SECONDS * hvdrun.patience())
        finally:
            job.kill()
            job.wait(10)
        said = Said(job.returncode, hvdrun.said(text + rest), read_record(results), verdicts.checked(verdict.read_text()))
    return case.right(said, plant), said, plant


def healthy(seed: int, package: str = "") -> str:
    """Runs one job without a fault: returns hvdrun's unexpected messages, or ""."""
    env = {"PYTHONPATH": package} if package else {}
    done = hvdrun.run("-np", str(SIZE), *hvdrun.python_args(), str(RANK_SCRIPT), "none", str(seed), env=env)
    harmless = " KiB and shown in pieces "  # one of the habits is a very long line
    own = [line for line in done.stderr.splitlines() if not line.startswith("[") and harmless not in line]
    return "" if done.returncode == 0 and not own else f"exit code {done.returncode}\n{done.stderr}"


def trials(options: argparse.Namespace) -> list[Trial]:
    """Each cause with each seed, and the healthy jobs."""
    seeds = range(options.first, options.first + options.seeds)
    causes = options.only or [name for name, case in CASES.items() if not (options.short and case.alike)]
    healthy_ones = [Trial(HEALTHY, seed) for seed in range(options.healthy)]
    return [Trial(cause, seed) for cause in causes for seed in seeds] + healthy_ones


def judge(trial: Trial, _: None, options: argparse.Namespace) -> list[Outcome]:
    """One job."""
    if trial.case == HEALTHY:
        said_all_the_same = healthy(trial.seed, options.package)
        return [Outcome(*trial, right=not said_all_the_same, about=said_all_the_same)]
    try:
        right, said, plant = run(trial.case, trial.seed, options.package)
    except Skip as reason:
        return [Outcome(*trial, right=True, skipped=str(reason))]
    except subprocess.TimeoutExpired:
        return [Outcome(*trial, right=False, about=f"load {os.getloadavg()[0]:.0f}: the job has not ended")]
    case, found = CASES[trial.case], said.verdict
    about = "" if right else f"rank {plant.culprit}: {said.returncode} {said.record}\n{said.stderr}"
    cause_right = found["cause"] == case.cause and found["rank"] == (
        None if case.kills in ("mpirun", "daemon") else plant.culprit
    )
    advice_right = found["advice"]["action"] == case.advice
    if not (cause_right and advice_right):
        about += f"verdict: rank {found['rank']} {found['cause']} {found['advice']}, not {case.cause} {case.advice}"
    figures = {"cause right": float(cause_right), "advice right": float(advice_right)}
    return [Outcome(*trial, right=right and cause_right and advice_right, about=about, figures=figures)]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--short", action="store_true", help="without the causes that are much like others")
    parser.add_argument("--healthy", type=int, default=0, help="so many jobs besides in which nothing goes wrong")


HEALTHY = "nothing"
CAMPAIGN = Campaign(__doc__, trials, judge, add_options)
