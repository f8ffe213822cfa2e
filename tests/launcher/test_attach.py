"""hvdrun attach: a console in a running rank."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support import hvdrun

# Rank 0 counts until a file appears.  It calls no function in Python, so a console always stops in this file.
# Rank 1 locks a mutex twice, so no signal makes it return to Python.
SCRIPT = """
import ctypes, os, time
import hvd
rank, on = int(os.environ['HVD_RANK']), 0
def count():
    seen = 0
    while not on and not os.access('on', os.F_OK):
        seen += 1
        time.sleep(0.01)
    print('went on', on, flush=True)
    while not os.access('on', os.F_OK): time.sleep(0.01)
def stay():
    mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    while True: libc.pthread_mutex_lock(mutex)
print('ready', os.getpid(), flush=True)
count() if rank == 0 else stay()
"""


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """Two ranks that are ready."""
    if subprocess.run([sys.executable, "-c", "import hvd"], capture_output=True).returncode:
        pytest.skip("hvd is not installed")
    (tmp_path / "count.py").write_text(SCRIPT)
    with hvdrun.started("-np", "2", *hvdrun.python_args(), "count.py", cwd=tmp_path) as running:
        for _ in range(2):
            assert "ready" in hvdrun.next_line(running.stdout)
        yield running


def attach(job: subprocess.Popen[str], rank: str, text: str) -> subprocess.CompletedProcess[str]:
    """hvdrun attach with a user's input, and the end of the input."""
    words = [hvdrun.program(), "attach", str(job.pid), rank]
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=60, env=hvdrun.environment())


def test_looks_steps_and_lets_go(job: subprocess.Popen[str]) -> None:
    """A variable is shown and changed, and a step taken; the rank continues after quit and after the end of the input."""
    for end in ("quit\n", "", "continue\n"):
        done = attach(job, "0", "p 'found', seen\n" + end)
        assert done.returncode == 0, done.stderr
        assert re.search(r"count.py\(\d+\)count\(\)", done.stdout), done.stdout
        assert re.search(r"\('found', \d+\)", done.stdout), done.stdout
        assert "attached to rank 0" in done.stderr
    stepped = attach(job, "0", "next\nnext\np 'after', rank\nglobals()['on'] = 7\nquit\n")
    assert "('after', 0)" in stepped.stdout, stepped.stdout
    assert "went on 7" in hvdrun.next_line(job.stdout)


def test_killed_console(job: subprocess.Popen[str]) -> None:
    """hvdrun attach is killed at the prompt: the rank continues."""
    words = [hvdrun.program(), "attach", str(job.pid), "0"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, text=True, env=hvdrun.environment(), **pipes) as console:
        assert "count.py" in hvdrun.next_line(console.stdout)
        assert "another debugger is attached" in attach(job, "0", "").stderr
        console.kill()
    done = attach(job, "0", "globals()['on'] = 3\n")
    assert done.returncode == 0, done.stderr
    assert "went on 3" in hvdrun.next_line(job.stdout)


@pytest.mark.ci
def test_native_code(job: subprocess.Popen[str]) -> None:
    """A rank that does not return to Python: its stack, and a limit."""
    done = attach(job, "1", "")
    assert done.returncode != 0
    assert "in native code" in done.stderr, done.stderr
    assert re.search(r'count.py", line \d+ in stay', done.stderr), done.stderr
    assert "did not come to Python code within 10 s" in done.stderr


def test_refusals(job: subprocess.Popen[str]) -> None:
    """No rank, an unknown rank."""
    for rank, text in (("7", "no such rank"), ("x", "is no rank")):
        assert text in attach(job, rank, "").stderr


STRANGER = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind("\\0hvdrun-attach-" + sys.argv[1])
door.listen()
print("listens", flush=True)
door.settimeout(30)
peer = door.accept()[0]
peer.settimeout(30)
print("got", peer.recv(100), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user: needs root")
def test_another_user_listens(job: subprocess.Popen[str]) -> None:
    """A stranger has taken the name: hvdrun says so, and the rank sends the stranger nothing."""
    (pid,) = [p for g in hvdrun.children(job.pid) for d in hvdrun.children(g) for p in hvdrun.children(d) if is_rank_0(p)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    words = [sys.executable, "-c", STRANGER, str(pid)]
    with subprocess.Popen(words, text=True, user=65534, group=65534, extra_groups=[], cwd="/", **pipes) as stranger:
        assert hvdrun.next_line(stranger.stdout) == "listens\n"
        assert "cannot listen for it" in attach(job, "0", "").stderr
        os.kill(pid, 60)
        assert hvdrun.next_line(stranger.stdout) == "got b''\n"
        stranger.communicate()
    assert "count.py" in attach(job, "0", "quit\n").stdout


def is_rank_0(pid: int) -> bool:
    """Returns whether the process is rank 0."""
    return b"HVD_RANK=0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
