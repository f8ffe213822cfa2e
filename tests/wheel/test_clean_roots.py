"""scripts/check-artefacts mounts /dev and the checkout into its roots: it must never delete through a mount."""

from __future__ import annotations

import fcntl
import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAILS_HALF_WAY = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import clean_root
cache = pathlib.Path(sys.argv[2])
delete = clean_root.shutil.rmtree

def careful(folder, **options):
    mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
    assert not [place for place in mounts if place.startswith(f"{folder}/")], mounts
    delete(folder, **options)

clean_root.shutil.rmtree = careful
file = cache / "artefacts"  # a file, where a folder is expected: the root fails after /dev is mounted
file.touch()
try:
    with clean_root.CleanRoot("bookworm", cache, file):
        print("entered")
except FileExistsError:
    print("failed,", "left" if (cache / "bookworm.changes").exists() else "removed")
"""
USES_A_CACHE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import clean_root
try:
    with clean_root.cache_of_roots(pathlib.Path(sys.argv[2])):
        print("used")
except clean_root.CheckError as error:
    print(error)
"""
REACHES_A_LIMIT = """
import sys
sys.path.insert(0, sys.argv[1])
import clean_root
try:
    clean_root.said(["sh", "-c", f"sleep 60 & echo $! >{sys.argv[2]}/child; wait"], limit=1)
except clean_root.CheckError as error:
    print(str(error)[-28:])
"""


def run(script: str, *arguments: str | pathlib.Path, within: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs lines of Python with the folder of clean_root.py and the arguments."""
    argv = [*within, sys.executable, "-c", script, ROOT / "scripts/lib", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def runs(command_line: pathlib.Path) -> bool:
    """Returns whether the process with this folder in /proc runs. The command line of a zombie is empty."""
    try:
        return command_line.read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_root_that_fails_half_way_is_unmounted_before_it_is_deleted(tmp_path: pathlib.Path) -> None:
    for folder in ("dev", "sys", "proc"):
        (tmp_path / "bookworm" / folder).mkdir(parents=True)
    (tmp_path / "bookworm/dev/shm").mkdir()
    done = run(FAILS_HALF_WAY, tmp_path, within=("unshare", "--mount"))
    if "unshare failed" in done.stderr or "overlay" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert (done.returncode, done.stdout) == (0, "failed, removed\n"), done.stderr
    assert pathlib.Path("/dev/null").is_char_device()


def test_a_folder_of_another_program_is_no_cache(tmp_path: pathlib.Path) -> None:
    """A new folder becomes one, and stays one. A folder with files is refused and left as it was."""
    for _ in range(2):
        done = run(USES_A_CACHE, tmp_path / "new")
        assert (done.returncode, done.stdout) == (0, "used\n"), done.stderr
    (tmp_path / "mine/bookworm.changes").mkdir(parents=True)
    assert "check-artefacts did not make it" in run(USES_A_CACHE, tmp_path / "mine").stdout
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["bookworm.changes"]


def test_one_run_at_a_time_uses_a_cache(tmp_path: pathlib.Path) -> None:
    """A second run cannot see the mounts of the first, and would delete its changes."""
    (tmp_path / ".made-by-check-artefacts").touch()
    with (tmp_path / ".made-by-check-artefacts").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another run uses" in run(USES_A_CACHE, tmp_path).stdout


def test_a_step_over_its_limit_leaves_no_process(tmp_path: pathlib.Path) -> None:
    done = run(REACHES_A_LIMIT, tmp_path)
    assert done.stdout.endswith("did not end within 1 s\n"), done.stderr
    child = pathlib.Path("/proc", (tmp_path / "child").read_text().strip(), "cmdline")
    deadline = time.monotonic() + 10
    while runs(child):
        assert time.monotonic() < deadline, "the child of the command still runs"
        time.sleep(0.05)
