"""SIGKILL of any process of a job, at any moment: three seconds later no process or file of it is left.

First hvdrank alone, under the stand-in of tests/rank, then whole jobs under hvdrun.
HVD_KILL_ROUNDS=100 repeats each case.  A quick run tries a few moments; test_kills.py uses two hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from support.forms import few

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build"))
HVDRUN = BUILD / "launcher/hvdrun"
sys.path.insert(0, str(ROOT / "tests/rank"))
from rank_bench import DRIVER, HVDRANK, manifest  # noqa: E402

from support import hvdrun  # noqa: E402

ROUNDS = few(hvdrun.some_nightly(os.environ.get("HVD_KILL_ROUNDS"), 2, 4))


def processes(mark: str) -> dict[int, str]:
    """Living processes with @p mark in their command line or environment, but not this one."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if mark.encode() in command or mark.encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state not in "ZX":
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")[:120]
        except OSError:
            continue
    return found


def gone_within(mark: str, seconds: float) -> dict[int, str]:
    """The processes left after @p seconds, more on a busy machine; returns as soon as there are none."""
    end = time.monotonic() + hvdrun.within(2 * seconds)
    while (left := processes(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


@pytest.fixture
def mark():
    """A word that marks every process of a test; the fixture ends remaining ones by pid."""
    word = "31" + str(uuid.uuid4().int)[:12]
    yield word
    for pid in processes(word):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def family(mark: str) -> str:
    """A rank with every kind of escaping child: setsid, an empty environment, double forks."""
    nap = f"sleep {mark}"
    return f"setsid {nap} & env -i /usr/bin/setsid {nap} & (setsid sh -c '{nap} & {nap}' &) ; trap '' TERM; {nap} & {nap}"


def children(pid: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(c) for t in tasks for c in (t / "children").read_text().split()]
    except OSError:
        return []


def tree(pid: int) -> list[int]:
    found = [pid]
    for p in found:
        found += children(p)
    return found


def named(pids: list[int], name: str) -> list[int]:
    out = []
    for pid in pids:
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name:
                out.append(pid)
        except OSError:
            continue
    return out


@pytest.mark.parametrize("victim", ["guard", "watchdog", "launcher"])
@pytest.mark.parametrize("round_", ROUNDS)
def test_hvdrank_alone(victim: str, round_: int, mark: str, tmp_path: Path) -> None:
    m = manifest(name="sh", args=["-c", family(mark)], env={"MARK": mark})
    (tmp_path / "m").write_text(json.dumps(m))
    moment = random.Random(f"{victim}{round_}").choice([0, 0.005, 0.02, 0.05, 0.1, 0.5])
    sockets = tempfile.TemporaryDirectory(prefix="hvd-driver-")  # a short path: a unix socket's name has 107 bytes
    env = {**os.environ, "MARK": mark, "HVD_DRIVER_FOLDER": sockets.name}
    driver = subprocess.Popen([DRIVER, HVDRANK, tmp_path / "m"], env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        watchdog = hvdrun.wait_until(lambda: named(children(driver.pid), "hvdrank"), "the watchdog")[0]
        guard = hvdrun.wait_until(lambda: children(watchdog), "the guard") if victim == "guard" else []
        time.sleep(moment)
        os.kill({"guard": guard[0] if guard else 0, "watchdog": watchdog, "launcher": driver.pid}[victim], signal.SIGKILL)
        if victim != "launcher":
            # The stand-in lives on, as hvdrun would, but it has no rank left and ends.
            driver.wait(60)
        assert not gone_within(mark, 3), f"{victim} killed {moment} s after it was there"
    finally:
        driver.kill()
        driver.wait()
        sockets.cleanup()


def start_job(mark: str, payload: list[str], tmp_path: Path, launcher: str) -> subprocess.Popen:
    env = {**os.environ, "MARK": mark, "HVD_RANK_PROGRAM": str(HVDRANK)}
    log = (tmp_path / "log").open("w")
    return subprocess.Popen(
        [HVDRUN, "--launcher", launcher, "-np", "2", *payload],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=tmp_path,
    )


def launcher_of(victim: str) -> str:
    """Returns the launcher whose jobs have such a process. Jobs of both launchers have the process hvdrun."""
    return "hvdrun" if "daemon" in victim else "mpirun"


def pick(victim: str, job: int) -> int:
    """The pid of that process of the job, as soon as it exists."""
    if victim == "hvdrun":
        return job

    def look() -> int:
        if "daemon" in victim:
            daemons = named(children(job), "hvdrank")
            if victim == "daemon":
                return daemons[-1] if daemons else 0
            # MPI's server comes first and briefly has the guards' name; a job without MPI does not need it.
            guards = [p for d in daemons for p in named(children(d), "hvdrank")]
            return guards[-1] if len(guards) > 1 else 0
        mpiruns = [p for name in ("mpirun", "orterun", "prterun", "prte") for p in named(tree(job), name)]
        if victim == "mpirun":
            return mpiruns[0] if mpiruns else 0
        watchdogs = [p for m in mpiruns for p in named(children(m), "hvdrank")]
        if victim == "watchdog":
            return watchdogs[-1] if watchdogs else 0
        guards = [p for k in watchdogs for p in named(children(k), "hvdrank")]
        return guards[-1] if guards else 0

    return int(hvdrun.wait_until(look, victim))


@pytest.mark.skipif(not HVDRUN.exists(), reason="hvdrun is not built here")
@pytest.mark.parametrize("victim", ["hvdrun", "mpirun", "watchdog", "guard", "daemon", "guard of a daemon"])
@pytest.mark.parametrize("round_", ROUNDS)
def test_a_whole_job(victim: str, round_: int, mark: str, tmp_path: Path) -> None:
    job = start_job(mark, ["--", "sh", "-c", family(mark)], tmp_path, launcher_of(victim))
    moment = random.Random(f"{victim}{round_}").choice([0, 0.01, 0.03, 0.1, 0.2, 0.6])
    try:
        pid = pick(victim, job.pid)
        time.sleep(moment)
        os.kill(pid, signal.SIGKILL)
        left = gone_within(mark, 3)
        assert not left, f"{victim} killed {moment} s after it was there: {left}\n{(tmp_path / 'log').read_text()}"
        job.wait(60)
    finally:
        job.kill()
        job.wait()


SLOW_IMPORT = """
import os, subprocess, sys, time
subprocess.Popen(["env", "-i", "/usr/bin/setsid", "sleep", os.environ["MARK"]])
print("importing", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not HVDRUN.exists(), reason="hvdrun is not built here")
@pytest.mark.parametrize("victim", ["hvdrun", "mpirun", "guard", "daemon", "guard of a daemon"])
def test_before_mpi_init(victim: str, mark: str, tmp_path: Path) -> None:
    """A rank that is still importing: mpirun alone would leave it alive."""
    (tmp_path / "slow.py").write_text(SLOW_IMPORT)
    job = start_job(mark, ["--python", sys.executable, "slow.py"], tmp_path, launcher_of(victim))
    try:
        hvdrun.wait_until(lambda: (tmp_path / "log").read_text().count("importing") == 2, "both ranks")
        os.kill(pick(victim, job.pid), signal.SIGKILL)
        assert not gone_within(mark, 3)
        job.wait(60)
    finally:
        job.kill()
        job.wait()
