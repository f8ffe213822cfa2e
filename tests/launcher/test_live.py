"""hvdrun ps, stacks and kill, from outside of a running job; and the verdict on a hanging job."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support import hvdrun
from support.forms import measured
from support.incidents import told

BUILD = pathlib.Path(os.environ.get("HVD_BUILD_DIR", hvdrun.ROOT / "build")).absolute()
PACKAGE = BUILD / "src/python"

SCRIPT = """
import json, os, socket, struct, sys, time
import hvd
rank = int(os.environ['HVD_RANK'])
def ready():
    open(f'ready.{rank}', 'w').close()
    print('ready', os.getpid(), flush=True)
def spin():
    ready()
    while True: pass
def nap():
    ready()
    time.sleep(100)
def stall():
    while not (os.path.exists('ready.0') and os.path.exists('ready.1')): time.sleep(0.01)
    link = socket.socket(fileno=os.dup(int(os.environ['HVD_LINK_FD'])))
    def tell(waits):
        body = json.dumps({'waits': waits}).encode()
        link.send(struct.pack('<IHH', len(body), 11, 0) + body)
    wait = {'tensor': 'grad/3', 'tensors': 300, 'waited_seconds': 5.1, 'missing': [0, 1], 'more': 0, 'size': 3}
    while not os.path.exists('on'):
        tell([wait])
        time.sleep(0.2)
        wait['waited_seconds'] += 0.2
    tell([])
    nap()
[spin, nap, stall if 'stall' in sys.argv else nap][rank]()
"""


@pytest.fixture
def env() -> dict[str, str]:
    """An environment in which `import hvd` works, or a skip."""
    env = {"PYTHONPATH": str(PACKAGE)} if (PACKAGE / "hvd/_native.abi3.so").exists() else {}
    if subprocess.run([sys.executable, "-c", "import hvd"], env={**os.environ, **env}, capture_output=True).returncode:
        pytest.skip("hvd is neither built nor installed")
    return env


def ready(job: subprocess.Popen[str], ranks: int) -> dict[int, int]:
    """Process ids by rank, once all ranks have printed them."""
    pids: dict[int, int] = {}
    assert job.stdout is not None
    while len(pids) < ranks:
        found = re.match(r"\[(\d) localhost\] ready (\d+)", job.stdout.readline())
        assert found, job.stderr.read() if job.stderr else ""
        pids[int(found[1])] = int(found[2])
    return pids


@pytest.fixture
def job(env: dict[str, str], tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """Three ranks: one loops, two sleep."""
    (tmp_path / "hang.py").write_text(SCRIPT)
    with hvdrun.started("-np", "3", *hvdrun.python_args(), "hang.py", cwd=tmp_path, env=env) as running:
        yield running


def test_ps_stacks_kill(job: subprocess.Popen[str]) -> None:
    """The job's line; every rank's Python and native frames; its end."""
    pids = ready(job, 3)
    os.kill(pids[2], signal.SIGSTOP)
    hvdrun.wait_until(lambda: hvdrun.state(pids[2]) == "T", "the rank's stop")
    listed = [line.split() for line in hvdrun.run("ps").stdout.splitlines()]
    (row,) = [words for words in listed if words[1] == str(job.pid)]
    assert row[2] == "3"
    assert row[4:] == ["runs", "localhost", "hang.py"]
    stacks = hvdrun.run("stacks", row[0]).stdout
    first, second, third = (part for part in re.split(r"^rank \d on localhost ", stacks, flags=re.M) if part)
    assert first.startswith("runs\n")
    assert re.search(r'hang.py", line \d+ in spin', first)
    assert re.search(r'hang.py", line \d+ in nap', second)
    assert third.startswith("is stopped\n")
    if "no native frames" not in stacks:  # ptrace or libdw may be missing
        assert re.search(r'hang.py", line \d+ in nap', third)
        assert "  thread " in second
        assert re.search(r"#\d+ +\w+ \(", second)
        assert re.search(r"  thread \d+ .*, sleeps\n", second)  # the kernel function in which it waits
    assert hvdrun.run("kill", str(job.pid)).stdout == f"ending job {row[0]}\n"
    assert job.wait(30) == 143
    assert hvdrun.run("stacks", row[0]).stderr.startswith(f"hvdrun: {row[0]}: no such job of yours runs here\n")


def test_a_hang_is_explained(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """When the runtime reports a missing rank, hvdrun prints its place once, and when the ranks continue."""
    (tmp_path / "hang.py").write_text(SCRIPT)
    args = ["-np", "3", *hvdrun.python_args(), "hang.py", "stall"]
    with hvdrun.started(*args, cwd=tmp_path, env=env) as job:
        assert job.stderr is not None
        # A rank may be just before its loop, in ready().
        assert re.fullmatch(
            r"hvdrun: rank 0 on localhost is in hang.py:\d+ \(\w+\); 1 rank has waited \d+ s for grad/3 and 299 more tensors\n",
            hvdrun.next_line(job.stderr),
        )
        assert re.fullmatch(r" {8}rank 1 on localhost is in hang.py:\d+ \(\w+\)\n", job.stderr.readline())
        (tmp_path / "on").touch()
        assert re.fullmatch(r"hvdrun: ranks 0-1 on localhost go on after \d+ s\n", job.stderr.readline())
        job.send_signal(signal.SIGINT)
        assert job.wait(30) == 130
        assert "grad/3" not in job.stderr.read()


VFORK = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, 0)  # clone(2)'s number
HANGS = {  # rank 1's action instead of the third allreduce, and the expected message
    "loops": ("while True: pass", r"is in hang.py:10 \(astray\)"),
    "is stopped": (
        "os.kill(os.getpid(), signal.SIGSTOP)",
        r"is stopped( at hang.py:10 \(astray\))? \(kill -CONT lets it go on\)",
    ),
    "is in D state": (  # vfork(2) waits so for its child
        f"ctypes.PyDLL(None).syscall({VFORK}, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) or (time.sleep(60), os._exit(0))",
        r"is in hang.py:10 \(astray\), waiting for a disk or a device",
    ),
    "takes another branch": ("hvd.allreduce(x, name='other')", r"is in hang.py:10 \(astray\)"),
}


@pytest.mark.parametrize("how", HANGS)
def test_the_runtime_tells_of_a_hang(env: dict[str, str], tmp_path: pathlib.Path, how: str) -> None:
    """One rank does not join a collective: hvdrun's message must name the rank and its line."""
    pytest.importorskip("numpy")
    action, said = HANGS[how]
    (tmp_path / "hang.py").write_text(
        "import ctypes, os, signal, time\n"
        "import numpy\n"
        "import hvd.numpy as hvd\n"
        "hvd.init()\n"
        "x = numpy.ones(4, 'f4')\n"
        "for step in range(2):\n"
        "    hvd.allreduce(x, name='grad/3')\n"
        "def astray():\n"
        "    x.fill(2)\n"
        f"    {action}\n"
        "astray() if hvd.rank() == 1 else hvd.allreduce(x, name='grad/3')\n"
    )
    where = ["-np", "3", "--grace", "1", "--stall-check-warning-time-seconds", str(round(hvdrun.patience()))]
    with hvdrun.started(*where, *hvdrun.python_args(), "hang.py", cwd=tmp_path, env=env) as job:
        told(job, rf"hvdrun: rank 1 on localhost {said}; 2 ranks have waited \d+ s for allreduce.grad/3\n")
        job.send_signal(signal.SIGINT)
        assert job.wait(30) == 130


@pytest.mark.nightly
def test_long_steps_ask_for_patience(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Steps of 2 s: a rank that is once 5.5 s late is not reported, but one that stays away is."""
    pytest.importorskip("numpy")
    (tmp_path / "slow.py").write_text(
        "import time\n"
        "import numpy\n"
        "import hvd.numpy as hvd\n"
        "hvd.init()\n"
        "x = numpy.ones(4, 'f4')\n"
        "for step in range(4):\n"
        "    time.sleep(2)\n"
        "    hvd.allreduce(x, name='grad')\n"
        "def behind(seconds):\n"
        "    if hvd.rank() == 1: time.sleep(seconds)\n"
        "behind(5.5)\n"
        "hvd.allreduce(x, name='grad')\n"
        "print('went on', flush=True)\n"
        "behind(100)\n"
        "hvd.allreduce(x, name='grad')\n"
    )
    with hvdrun.started("-np", "2", "--grace", "1", *hvdrun.python_args(), "slow.py", cwd=tmp_path, env=env) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        for _ in range(2):
            assert job.stdout.readline().endswith("went on\n")
        said = job.stderr.readline()
        found = re.fullmatch(
            r"hvdrun: rank 1 on localhost is in slow.py:10 \(behind\); 1 rank has waited (\d+) s for allreduce.grad\n", said
        )
        assert found, said
        assert int(found[1]) >= 6
        job.send_signal(signal.SIGINT)
        assert job.wait(30) == 130


@measured
def test_the_report_tells_of_steps_and_the_slowest_rank(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """One-time work at the beginning is no step; the others wait for the rank with more work."""
    pytest.importorskip("numpy")
    (tmp_path / "job.py").write_text(
        "import sys, time, numpy, hvd.numpy as hvd\n"
        "hvd.init()\n"
        "x = numpy.ones(4)\n"
        "for i in range(5): hvd.broadcast(x, 0, name=f'once{i}')\n"
        "for step in range(30):\n"
        "    time.sleep(0.06 if hvd.rank() == 1 else 0.01)\n"
        "    hvd.allreduce(x, name='a')\n"
    )
    args = ["-np", "2", "--report", "--json", *hvdrun.python_args(), "job.py"]
    done = hvdrun.run(*args, cwd=tmp_path, env=env)
    report = json.loads(done.stderr.splitlines()[-1])
    assert 24 <= report["steps"] <= 30  # the first few may be missed
    assert 0.05 < report["step_seconds"] < 5
    assert report["slowest_rank"] == 1
    assert report["others_waited_seconds"] > 0.02


def test_processes_that_a_rank_forks_after_should_stop_end_at_sigterm(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Python ends daemon processes by SIGTERM, and waits for them without a limit."""
    pytest.importorskip("numpy")
    (tmp_path / "job.py").write_text(
        "import multiprocessing, os, signal, time\n"
        "import hvd.numpy as hvd\n"
        "hvd.init()\n"
        "hvd.should_stop()\n"
        "context = multiprocessing.get_context('fork')\n"
        "context.Process(target=time.sleep, args=(60,), daemon=True).start()\n"
        "def sleep(begun):\n"
        "    begun.set()\n"
        "    time.sleep(60)\n"
        "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):\n"
        "    begun = context.Event()\n"
        "    child = context.Process(target=sleep, args=(begun,))\n"
        "    child.start()\n"
        "    if number == signal.SIGINT: begun.wait()  # Python itself may lose it before\n"
        "    os.kill(child.pid, number)\n"
        "    child.join()\n"
        "    print(number.name, child.exitcode)\n"
    )
    done = hvdrun.run("-np", "1", *hvdrun.python_args(), "job.py", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"(SIG\w+) (-?\d+)", done.stdout) == [("SIGTERM", "-15"), ("SIGHUP", "-1"), ("SIGINT", "1")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_should_stop_is_agreed_at_one_step(env: dict[str, str], tmp_path: pathlib.Path, number: int) -> None:
    """hvdrun must end: every rank learns of it at the same call, saves, and exits with success."""
    pytest.importorskip("numpy")
    (tmp_path / "job.py").write_text(
        "import hvd.numpy as hvd\n"
        "hvd.init()\n"
        "step = 0\n"
        "while not hvd.should_stop():\n"
        "    step += 1\n"
        "    if step == 10: print('ready', flush=True)\n"
        "print('saved at', step)\n"
    )
    with hvdrun.started("-np", "2", "--grace", "30", *hvdrun.python_args(), "job.py", cwd=tmp_path, env=env) as job:
        assert job.stdout is not None
        for _ in range(2):
            assert job.stdout.readline().endswith("] ready\n")
        job.send_signal(number)
        assert job.wait(60) == 128 + number
        saved = re.findall(r"saved at (\d+)", job.stdout.read())
        assert len(saved) == 2
        assert len(set(saved)) == 1
