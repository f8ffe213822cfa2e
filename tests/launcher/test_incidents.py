"""hvdrun reports hangs from the first instruction of the ranks to the last, and their end."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from support import hvdrun
from support.forms import few
from support.incidents import told

BUILD = pathlib.Path(os.environ.get("HVD_BUILD_DIR", hvdrun.ROOT / "build")).absolute()
PACKAGE = BUILD / "src/python"
BEGIN = "import atexit, os, signal, sys, time, numpy, hvd.numpy as hvd\nrank = int(os.environ['HVD_RANK'])\nx = numpy.ones(4)\n"


@pytest.fixture
def env() -> dict[str, str]:
    """An environment in which `import hvd.numpy` works, or a skip."""
    pytest.importorskip("numpy")
    env = {"PYTHONPATH": str(PACKAGE)} if (PACKAGE / "hvd/_native.abi3.so").exists() else {}
    if subprocess.run([sys.executable, "-c", "import hvd"], env={**os.environ, **env}, capture_output=True).returncode:
        pytest.skip("hvd is neither built nor installed")
    return env


FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")  # of cgroups of version 1
UNIFIED = pathlib.Path("/sys/fs/cgroup/cgroup.procs")


@pytest.fixture
def freezer() -> Iterator[pathlib.Path]:
    """A cgroup that can freeze, or a skip."""
    group = (FREEZER if FREEZER.exists() else UNIFIED.parent) / f"hvd-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as e:
        pytest.skip(f"no cgroup can be made here: {e}")
    yield group
    freeze(group, False)
    hvdrun.wait_until(lambda: not (group / "cgroup.procs").read_text(), "the end of the frozen processes")
    group.rmdir()


def freeze(group: pathlib.Path, on: bool) -> None:
    if (group / "freezer.state").exists():
        (group / "freezer.state").write_text("FROZEN" if on else "THAWED")
    else:
        (group / "cgroup.freeze").write_text("1" if on else "0")


@pytest.mark.ci
def test_a_rank_that_never_comes_to_init(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The rank and its line are named; the user's time limit also ends the job there."""
    (tmp_path / "job.py").write_text(BEGIN + "if rank == 1: time.sleep(100)\nhvd.init()\n")
    limits = ["--stall-check-warning-time-seconds", "5", "--stall-check-shutdown-time-seconds", "8", "--grace", "1"]
    done = hvdrun.run("-np", "3", *limits, *hvdrun.python_args(), "job.py", cwd=tmp_path, env=env)
    assert done.returncode == 6
    assert re.fullmatch(
        r"hvdrun: rank 1 on localhost is in job.py:4; 2 ranks have waited \d+ s in hvd.init\(\)\n"
        r"hvdrun: 2 ranks have waited \d+ s in hvd.init\(\), but not rank 1 on localhost; all ranks have ended "
        r"\(--stall-check-shutdown-time-seconds\)\n",
        done.stderr,
    ), done.stderr


@pytest.mark.ci
def test_a_frozen_coordinator(env: dict[str, str], tmp_path: pathlib.Path, freezer: pathlib.Path) -> None:
    """Rank 0 is frozen as by `docker pause`: no signal has stopped it, and the coordinator in it cannot report waiting
    ranks."""
    (tmp_path / "job.py").write_text(
        BEGIN + "hvd.init()\nhvd.allreduce(x, name='a')\n"
        "if rank == 0: print(os.getpid(), flush=True), time.sleep(3)\nhvd.allreduce(x, name='a')\n"
    )
    with hvdrun.started("-np", "3", "--grace", "1", *hvdrun.python_args(), "job.py", cwd=tmp_path, env=env) as job:
        assert job.stdout is not None
        (freezer / "cgroup.procs").write_text(job.stdout.readline().split()[-1])
        freeze(freezer, True)
        said = r"hvdrun: rank 0 on localhost is frozen by its cgroup \(.*\); 2 ranks have waited (\d+) s for allreduce.a\n"
        assert int(told(job, said)[1]) < 30
        freeze(freezer, False)
        assert job.wait(60) == 0


@pytest.mark.ci
def test_the_limit_of_libhvd_waits_for_work_that_ends_by_itself(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The evaluation takes longer than the limit; then the limit ends a rank that hangs."""
    (tmp_path / "job.py").write_text(
        BEGIN + "def evaluate():\n"
        "    end = time.monotonic() + 16\n"
        "    while time.monotonic() < end: pass\n"
        "hvd.init()\n"
        "if rank == 1: evaluate()\n"
        "hvd.allreduce(x, name='a')\n"
        "print('goes on', flush=True)\n"
        "if rank == 1: time.sleep(100)\n"
        "hvd.allreduce(x, name='b')\n"
    )
    limits = ["--stall-check-warning-time-seconds", "5", "--stall-check-shutdown-time-seconds", "10", "--grace", "1"]
    done = hvdrun.run("-np", "2", *limits, *hvdrun.python_args(), "job.py", cwd=tmp_path, env=env)
    assert done.returncode != 0
    assert done.stdout.count("goes on") == 2, done.stderr
    assert re.search(r"rank 1 on localhost is in job.py:[56] \(evaluate\), evaluating, which ends by itself; ", done.stderr)
    by_libhvd, by_hvdrun = r"'allreduce.b' has waited \d+ s for rank 1", r"has waited \d+ s for allreduce.b, but not rank 1"
    assert re.search(f"{by_libhvd}|{by_hvdrun}", done.stderr), done.stderr


HANGS = {  # the job's behaviour, and the expected message
    "at the end": (
        "hvd.init()\nhvd.allreduce(x, name='a')\nif rank == 1: atexit.register(time.sleep, 100)\n",
        r"rank 1 on localhost (waits|is in \S+( \(\S+\))?); the others are through since \d+ s\n",
    ),
    "after its end": (  # code that runs in the process after hvd's own end
        "hvd.init()\nimport threading\nif rank == 1: threading.Thread(target=time.sleep, args=(100,)).start()\n",
        r"rank 1 on localhost is in \S+ \(\S+\), waiting for its threads, since its script has ended; "
        r"the others are through since \d+ s\n",
    ),
    "in join": (
        "hvd.init()\nfor i in range(9): hvd.allreduce(x, name='a')\nif rank == 1: time.sleep(100)\nhvd.join()\n",
        r"rank 1 on localhost is in job.py:6; 2 ranks have waited \d+ s for hvd.join\(\)\n",
    ),
}


@pytest.mark.parametrize("where", few(["in join", "at the end", pytest.param("after its end", marks=pytest.mark.nightly)]))
def test_a_hang_is_told_wherever_it_is(env: dict[str, str], tmp_path: pathlib.Path, where: str) -> None:
    """The message names the rank for which the others wait."""
    script, said = HANGS[where]
    (tmp_path / "job.py").write_text(BEGIN + script)
    args = ["-np", "3", "--grace", "1", "--stall-check-warning-time-seconds", str(2 * round(hvdrun.patience()))]
    with hvdrun.started(*args, *hvdrun.python_args(), "job.py", cwd=tmp_path, env=env) as job:
        told(job, "hvdrun: " + said)
        job.send_signal(signal.SIGINT)
        assert job.wait(30) == 130


def test_a_hang_is_told_each_time(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Rank 0, which runs the coordinator, is stopped, continued and stopped again, at the same tensor."""
    (tmp_path / "job.py").write_text(
        BEGIN + "hvd.init()\n"
        "for i in range(3):\n"
        "    if rank == 0 and i: print(os.getpid(), flush=True), os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    hvd.allreduce(x, name='a')\n"
    )
    args = ["-np", "3", "--grace", "1", "--stall-check-warning-time-seconds", str(2 * round(hvdrun.patience()))]
    with hvdrun.started(*args, *hvdrun.python_args(), "job.py", cwd=tmp_path, env=env) as job:
        assert job.stdout is not None
        for time in range(2):
            pid = int(job.stdout.readline().split()[-1])
            stopped = r"is stopped( at job.py:6)? \(kill -CONT .*\)"
            told(job, rf"hvdrun: rank 0 on localhost {stopped}; 2 ranks have waited \d+ s for allreduce.a\n")
            os.kill(pid, signal.SIGCONT)
            if time == 0:
                told(job, r"hvdrun: rank 0 on localhost goes on after \d+ s\n")
        assert job.wait(60) == 0


def with_all_below(pid: int) -> list[int]:
    return [pid] + [p for child in hvdrun.children(pid) for p in with_all_below(child)]


LIBRARIES = {  # the beginning of a job, and its collective
    "hvd": (BEGIN + "hvd.init()\n", "hvd.allreduce(x, name='a')\n"),
    "gloo": (
        "import os, time, torch, torch.distributed\n"
        "torch.distributed.init_process_group('gloo')\n"
        "rank, x = torch.distributed.get_rank(), torch.ones(4)\n",
        "torch.distributed.all_reduce(x)\n",
    ),
}


@pytest.mark.parametrize("late", few([0, pytest.param(1, marks=pytest.mark.ci)]))
@pytest.mark.parametrize("library", few(["hvd", pytest.param("gloo", marks=pytest.mark.ci)]))
@pytest.mark.parametrize("all_processes", few([pytest.param(False, id="Ctrl-Z"), pytest.param(True, id="all processes")]))
def test_a_stopped_job_does_not_wait(
    env: dict[str, str], tmp_path: pathlib.Path, late: int, library: str, all_processes: bool
) -> None:
    """Neither Ctrl-Z nor a stop of all processes, as by `docker pause` or Slurm's suspend, counts as a wait."""
    if library == "gloo":
        pytest.importorskip("torch")
    begin, collective = LIBRARIES[library]
    (tmp_path / "job.py").write_text(
        f"{begin}if rank == {late}:\n    print('late', flush=True)\n    for _ in range(30): time.sleep(0.1)\n{collective}"
    )
    limits = ["--stall-check-warning-time-seconds", "9", "--stall-check-shutdown-time-seconds", "9"]
    with hvdrun.started("-np", "2", *limits, *hvdrun.python_args(), "job.py", cwd=tmp_path, env=env) as job:
        assert job.stdout is not None
        assert job.stdout.readline().endswith("late\n")
        time.sleep(1.5)  # the coordinator has seen that the other rank waits
        to_stop = with_all_below(job.pid) if all_processes else [job.pid]
        for pid in to_stop:
            os.kill(pid, signal.SIGSTOP if all_processes else signal.SIGTSTP)
        time.sleep(14)
        for pid in to_stop:
            os.kill(pid, signal.SIGCONT)
        _, said = job.communicate(timeout=60)
        assert job.returncode == 0, said
