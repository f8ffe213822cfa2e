"""The verdict names the cause at which a rank's last output only hints."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from support import hvdrun
from support.forms import few

SCRIPTS = {
    "a message of several lines": ("raise RuntimeError('bad\\nhvdrun: all is well')", "(RuntimeError: bad)"),
    "text after the exception": (
        "import atexit, os\natexit.register(lambda: os.write(2, b'[W1126 a.cpp:1] Warning\\n'))\nraise OSError('gone')",
        "(OSError: gone)",
    ),
    "a group, with its members": (
        "import sys\nif sys.version_info < (3, 11): raise KeyError('ExceptionGroup: many (2 sub-exceptions): b')\n"
        "raise ExceptionGroup('many', [ValueError('a'), KeyError('b')])",
        "ExceptionGroup: many (2 sub-exceptions): ",
    ),
    "an error in __del__ afterwards": (
        "class D:\n    def __del__(self): raise RuntimeError('in del')\nd = D()\nraise ValueError('the cause')",
        "(ValueError: the cause)",
    ),
    "a syntax error": ("x = (1", "(SyntaxError: "),
    "sys.exit() with a text": (
        "import sys, warnings\nimport atexit\natexit.register(lambda: warnings.warn('late'))\nsys.exit('no data in /data')",
        "exit code 1: no data in /data",
    ),
    "input()": ("input('name? ')", "its standard input is empty: hvdrun --stdin RANK gives yours to one; hvdrun attach RANK"),
    "breakpoint()": ("breakpoint()\nx = 1", "hvdrun --stdin RANK"),
    "a limit on memory": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nbytearray(1 << 31)",
        "(MemoryError)",
    ),
    "a killed child": (
        "import os, signal\npid = os.fork()\nif pid == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\nraise ConnectionResetError(104, 'reset')",
        ") was killed by signal 9 (SIGKILL) (ConnectionResetError: ",
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_verdict_explains(name: str, tmp_path: pathlib.Path) -> None:
    script, expected = SCRIPTS[name]
    (tmp_path / "job.py").write_text(script + "\n")
    done = hvdrun.run("-np", "1", *hvdrun.python_args(), "job.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    own = [line for line in done.stderr.splitlines() if not line.startswith("[0 localhost]")]
    assert own[0].startswith("hvdrun: rank 0 on localhost ended with exit code 1"), done.stderr
    assert expected in " ".join(own), done.stderr
    assert not any(line.startswith("hvdrun: all is well") for line in own)


def test_a_limit_on_address_space_is_named(tmp_path: pathlib.Path) -> None:
    """The limit is inherited from the shell (ulimit -v)."""
    (tmp_path / "job.py").write_text("bytearray(1 << 33)\n")
    argv = [hvdrun.program(), "-np", "1", *hvdrun.python_args(), "job.py"]
    shell = ["sh", "-c", 'ulimit -v 6000000; exec "$@"', "sh", *argv]
    done = subprocess.run(shell, cwd=tmp_path, env=hvdrun.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "its address space is limited to 5.7 GiB (ulimit -v)" in done.stderr


def test_a_syntax_error_is_shown_once(tmp_path: pathlib.Path) -> None:
    """Python prints it without the heading of a traceback; so its lines pass on as they come."""
    (tmp_path / "job.py").write_text("x = (1\n")
    done = hvdrun.run("-np", "1", *hvdrun.python_args(), "--output-filename", "out", "job.py", cwd=tmp_path)
    assert "hvdrun: rank 0 on localhost ended with exit code 1 (SyntaxError: " in done.stderr
    assert done.stderr.count("[0 localhost] SyntaxError: ") == 1, done.stderr
    (kept,) = tmp_path.glob("out/rank.*/stderr")
    assert kept.read_text().count("SyntaxError: ") == 1


@contextlib.contextmanager
def small_disk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of 1 MiB."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "hvd-test", str(folder)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here (root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


TORCH_SCRIPTS = """
import os, signal, sys, torch
what = sys.argv[1]
if what == "save":
    torch.save(torch.zeros(1 << 20), sys.argv[2] + "/model.pt")

class Data(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, i):
        if i == 207: os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(4)

if what == "loader with hvd":
    import hvd.torch
    hvd.torch.init()
for batch in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=2): pass
"""


def torch_job(folder: pathlib.Path, *arguments: str) -> str:
    """Runs one of TORCH_SCRIPTS, and returns hvdrun's stderr without the rank's own lines."""
    pytest.importorskip("torch")
    (folder / "job.py").write_text(TORCH_SCRIPTS)
    done = hvdrun.run("-np", "1", *hvdrun.python_args(), "job.py", *arguments, cwd=folder, timeout=120)
    assert done.returncode == 1, done.stderr
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("[0 localhost]"))


def test_a_disk_that_torch_save_fills_is_named(tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        said = torch_job(tmp_path, "save", str(disk))
    assert f"{disk} is full (1 MiB)" in said


@pytest.mark.parametrize("how", few(["loader with hvd", "loader"]))
@pytest.mark.parametrize("round_", hvdrun.some_nightly(os.environ.get("HVD_LOADER_ROUNDS"), 1, 20))
def test_a_killed_worker_of_a_loader_is_named(how: str, round_: int, tmp_path: pathlib.Path) -> None:
    said = torch_job(tmp_path, how)
    assert "DataLoader worker (pid" in said or "was killed by signal 9 (SIGKILL)" in said, said
