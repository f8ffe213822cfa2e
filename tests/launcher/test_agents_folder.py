"""The folder of a Python program that starts hvdrun in a cluster: only this user enters it, and no killed program's stays."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from support import hvdrun

MAKE = "from hvd._job.agents import private_folder; print(private_folder())"


def made(place: pathlib.Path) -> pathlib.Path:
    """The folder of a program that has ended, with TMPDIR=place."""
    environment = hvdrun.environment(TMPDIR=str(place), HVD_RUN_PROGRAM=hvdrun.program())
    done = subprocess.run([sys.executable, "-c", MAKE], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


def test_that_of_a_killed_program_is_removed(tmp_path: pathlib.Path) -> None:
    strange = tmp_path / "hvd-agents-AAAAAAAA"
    strange.mkdir()  # without our mark
    (tmp_path / "hvd-agents-BBBBBBBB").symlink_to(strange)
    first = made(tmp_path)
    assert first.parent == tmp_path and first.stat().st_mode & 0o777 == 0o700
    (first / "function.pkl").touch()
    second = made(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([second, strange, tmp_path / "hvd-agents-BBBBBBBB"])


def test_that_of_a_living_program_stays(tmp_path: pathlib.Path) -> None:
    command = [hvdrun.program(), "--agents-folder", str(os.getpid())]
    told = subprocess.run(command, env=hvdrun.environment(TMPDIR=str(tmp_path)), capture_output=True, text=True, timeout=60)
    made(tmp_path)
    assert pathlib.Path(told.stdout.strip()).is_dir()


def test_a_place_where_others_could_exchange_it_is_left(tmp_path: pathlib.Path) -> None:
    """A folder that others may write to is no place for it, unless it has the sticky bit."""
    inner = tmp_path / "open/inner"
    inner.mkdir(parents=True)
    for mode, place in ((0o700, inner), (0o777, pathlib.Path("/tmp")), (0o1777, inner)):
        inner.parent.chmod(mode)
        folder = made(inner)
        shutil.rmtree(folder)
        assert folder.parent == place, oct(mode)


@pytest.mark.parametrize("words", [[], ["x"], ["1", "2"]])
def test_it_takes_a_process(words: list[str]) -> None:
    done = subprocess.run([hvdrun.program(), "--agents-folder", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--agents-folder" in done.stderr
