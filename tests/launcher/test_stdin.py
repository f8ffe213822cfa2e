"""--stdin: hvdrun's standard input reaches one rank, whole, with its end, and no faster than the rank reads."""

from __future__ import annotations

import hashlib
import os
import pathlib
import pty
import random
import signal
import subprocess
import time

import pytest

from support import hvdrun

SUM = "import hashlib, os, sys; print(os.environ['HVD_RANK'], hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"


def rank_code(tmp_path: pathlib.Path, code: str) -> list[str]:
    """A command for the ranks that runs the code."""
    (tmp_path / "job.py").write_text(code + "\n")
    return [*hvdrun.python_args(), str(tmp_path / "job.py")]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_large_file_arrives_bit_for_bit(tmp_path: pathlib.Path, rank: int) -> None:
    """20 MiB from a file and from a pipe; the other ranks read end-of-file at once."""
    data = random.Random(7).randbytes(20 << 20)
    (tmp_path / "data").write_bytes(data)
    argv = [hvdrun.program(), "-np", "2", "--stdin", str(rank), *rank_code(tmp_path, SUM)]
    empty, full = hashlib.sha256().hexdigest(), hashlib.sha256(data).hexdigest()
    wanted = sorted(f"[{r} localhost] {r} {full if r == rank else empty}" for r in range(2))
    with (tmp_path / "data").open("rb") as file:
        done = subprocess.run(argv, stdin=file, capture_output=True, timeout=60, env=hvdrun.environment())
    assert sorted(done.stdout.decode().splitlines()) == wanted, done.stderr
    done = subprocess.run(argv, input=data, capture_output=True, timeout=60, env=hvdrun.environment())
    assert sorted(done.stdout.decode().splitlines()) == wanted, done.stderr


def test_lines_go_back_and_forth(tmp_path: pathlib.Path) -> None:
    """Each line is answered before the next is written, as with a person; then Ctrl-D on a terminal ends it."""
    main, terminal = pty.openpty()
    code = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)\nprint('end', flush=True)"
    argv = [hvdrun.program(), "-np", "2", "--stdin", "0", *rank_code(tmp_path, code)]
    job = subprocess.Popen(
        argv, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=hvdrun.environment(), text=True
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "[1 localhost] end\n"
        for word in ("one", "two"):
            os.write(main, f"{word}\n".encode())
            assert job.stdout.readline() == f"[0 localhost] got {word}\n"
        os.write(main, b"\x04")
        assert job.stdout.readline() == "[0 localhost] end\n"
        assert job.wait(30) == 0
    finally:
        job.kill()
        job.communicate()
        os.close(main)
        os.close(terminal)


def test_a_rank_that_does_not_read_holds_its_feeder(tmp_path: pathlib.Path) -> None:
    """At most a few MiB are in transit; a rank that ends without reading ends the job with success."""
    argv = [hvdrun.program(), "-np", "1", "--stdin", "0", "--", "sh", "-c", "echo up; while [ ! -e end ]; do sleep 0.05; done"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    job = subprocess.Popen(argv, **pipes, env=hvdrun.environment(), cwd=tmp_path)
    try:
        assert job.stdin is not None
        assert job.stdout is not None
        assert job.stdout.readline() == b"[0 localhost] up\n"
        os.set_blocking(job.stdin.fileno(), False)
        fed, quiet = 0, 0
        while quiet < 20 and job.poll() is None:
            try:
                fed += os.write(job.stdin.fileno(), b"x" * 65536)
                quiet = 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.02)
            except BrokenPipeError:
                break
        assert fed < 4 << 20
        (tmp_path / "end").touch()
        assert job.wait(60) == 0
    finally:
        job.kill()
        job.wait()


def test_without_it_there_is_none(tmp_path: pathlib.Path) -> None:
    """All ranks have /dev/null, and hvdrun leaves its own standard input alone; an unknown rank is refused."""
    argv = [hvdrun.program(), "-np", "2", "--", "readlink", "/proc/self/fd/0"]
    done = subprocess.run(argv, input="x", capture_output=True, text=True, timeout=60, env=hvdrun.environment())
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["/dev/null"] * 2
    done = hvdrun.run("-np", "2", "--stdin", "2", "--", "true")
    assert done.returncode == 2
    assert done.stderr == "hvdrun: --stdin: there is no rank 2\n        the ranks are 0 to 1\n"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_reach_every_rank(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    """hvdrun passes SIGUSR1 and SIGUSR2 unchanged to all ranks."""
    code = (
        "import signal\n"
        "import time\n"
        "caught = []\n"
        "def note(number, _):\n"
        "    print('caught', number, flush=True)\n"
        "    caught.append(number)\n"
        f"signal.signal({int(number)}, note)\n"
        "print('up', flush=True)\n"
        "while not caught: time.sleep(0.02)"  # pause() could miss a first signal that came just before it
    )
    with hvdrun.started("-np", "2", *rank_code(tmp_path, code)) as job:
        assert job.stdout is not None
        for _ in range(2):
            assert job.stdout.readline().endswith("up\n")
        job.send_signal(number)
        said = sorted(job.stdout.readline() for _ in range(2))
        assert said == [f"[{r} localhost] caught {int(number)}\n" for r in range(2)]
        assert job.wait(30) == 0
