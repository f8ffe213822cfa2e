"""hvdrun --state-dir: the last commit survives the ranks and hvdrun; foreign or incomplete files are never loaded."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from typing import Any, Callable

import pytest

from failures.test_elastic import COUNTER, SAMPLES, TORCH, environment, job, result
from hvd._elastic import state_folder as _state_folder
from support import hvdrun

NAME = "elastic-state"


def went_on(done: Any) -> int:
    """The commit from which it resumed."""
    found = re.search(r"hvd\.elastic: goes on from commit (\d+) in ", done.stdout + done.stderr)
    assert found, done.stdout + done.stderr
    return int(found[1])


def steps(tmp_path: pathlib.Path) -> list[int]:
    """The steps in the order of completion, including repeated ones."""
    return [int(line.split()[1]) for line in (tmp_path / "steps").read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "state"


def test_all_ranks_die_and_new_ones_go_on(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    kill = json.dumps([[20, [0, 1]]])
    done = job(tmp_path, 2, "--min-np", "2", "--state-dir", str(folder), ELASTIC_KILL=kill)
    result(done)
    assert 0 < went_on(done) <= 20
    assert list(folder.iterdir()) == []  # the training is done


def test_all_ranks_die_before_the_first_commit(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    kill = json.dumps([[0, [0, 1]]])
    done = job(tmp_path, 2, "--min-np", "2", "--state-dir", str(folder), ELASTIC_KILL=kill)
    assert done.returncode == 1, done.stderr
    assert f"are gone, and {folder} has no commit yet; start from a checkpoint" in done.stderr, done.stderr


def test_nobody_is_left_and_nobody_can_be_started_yet(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    """Both slots have failed twice, so hvdrun starts no rank there for two seconds. The job then resumes from its state
    folder."""
    kill = json.dumps([[8, [0, 1]], [16, [0, 1]]])
    options = ["--min-np", "2", "--state-dir", str(folder), "--blacklist-cooldown-range", "2", "2"]
    done = job(tmp_path, 2, *options, ELASTIC_KILL=kill)
    result(done)
    assert done.stderr.count("is left alone for 2 s") == 2, done.stderr


def test_a_job_of_fixed_ranks_is_started_again(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    options = ["--state-dir", str(folder)]
    first = job(tmp_path, 2, *options, ELASTIC_KILL=json.dumps([[10, [1]]]), ELASTIC_PAUSE="0.03")
    assert first.returncode == 137, first.stderr
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    before = len(steps(tmp_path))
    second = job(tmp_path, 2, *options)
    result(second)
    commit = went_on(second)
    assert 0 < commit <= before
    assert steps(tmp_path)[before] == commit + 1
    third = job(tmp_path, 2, *options)  # the training was finished: it starts again
    result(third)
    assert "goes on from" not in third.stdout + third.stderr


@pytest.mark.ci
def test_other_numbers_of_ranks_and_models_of_torch(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    options = ["--state-dir", str(folder)]
    first = job(tmp_path, 3, *options, script=TORCH, ELASTIC_KILL=json.dumps([[28, [0]]]), ELASTIC_PAUSE="0.06")
    assert first.returncode == 137, first.stderr
    assert (folder / NAME).exists(), first.stderr
    second = job(tmp_path, 2, *options, script=TORCH)
    result(second)
    assert 0 < went_on(second) <= 30


def test_hvdrun_itself_dies(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    argv = ["-np", "2", "--min-np", "1", "--state-dir", str(folder), sys.executable, str(COUNTER)]
    with hvdrun.started(*argv, env=environment(tmp_path, ELASTIC_PAUSE="0.03")) as running:
        limit = time.monotonic() + 60
        while not (tmp_path / "steps").exists() or len(steps(tmp_path)) < 8:
            assert time.monotonic() < limit
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
        running.wait(timeout=30)
    limit = time.monotonic() + 30
    before = -1
    while before != len(steps(tmp_path)):  # the ranks end by themselves
        assert time.monotonic() < limit
        before = len(steps(tmp_path))
        time.sleep(1)
    done = hvdrun.run(*argv, env=environment(tmp_path), timeout=120)
    result(done)
    assert 0 < went_on(done) <= before


@pytest.fixture
def kept(tmp_path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The file of a dead job."""
    done = job(tmp_path, 1, "--state-dir", str(folder), ELASTIC_KILL=json.dumps([[10, [0]]]), ELASTIC_PAUSE="0.03")
    assert done.returncode == 137, done.stderr
    return folder / NAME


def torn(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flipped(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 4
    path.write_bytes(data)


def a_text(path: pathlib.Path) -> None:
    path.write_text("my own notes, which nobody else may change")


def a_link(path: pathlib.Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_second_name(path: pathlib.Path) -> None:
    os.link(path, path.with_name("elsewhere"))


def a_folder(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: pathlib.Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def open_to_all(path: pathlib.Path) -> None:
    path.chmod(0o622)


def an_older_commit(path: pathlib.Path) -> None:
    other = _state_folder.StateFolder(str(path.parent / "other"), "other", make=True)
    other.claim()
    other.write(0, b"", lambda: True)
    (path.parent / "other" / NAME).replace(path)


def of_another_user(path: pathlib.Path) -> None:
    os.chown(path, 65534, 65534)


SPOILED: list[tuple[Callable[[pathlib.Path], None], str]] = [
    (torn, "is not whole"),
    (flipped, "has changed since it was written"),
    (a_text, "is no state of an elastic job"),
    (a_link, "is a symbolic link"),
    (a_second_name, "has a second name"),
    (a_folder, "is no file"),
    (a_pipe, "is no file"),
    (open_to_all, "can be written by other users"),
    (an_older_commit, r"is of commit 0, but commit \d+ was written there"),
    (of_another_user, "belongs to another user"),
]


@pytest.mark.parametrize(("spoil", "words"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
def test_what_must_not_be_loaded(
    tmp_path: pathlib.Path, folder: pathlib.Path, kept: pathlib.Path, spoil: Callable[[pathlib.Path], None], words: str
) -> None:
    if spoil is of_another_user and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    spoil(kept)
    before = (kept.lstat().st_mode, kept.lstat().st_mtime_ns, kept.lstat().st_uid)
    done = job(tmp_path, 2, "--state-dir", str(folder))
    assert done.returncode == 1, done.stderr
    assert re.search(f"{re.escape(str(kept))} {words}", done.stderr), done.stderr
    assert "move it away" in done.stderr or spoil is an_older_commit
    assert (kept.lstat().st_mode, kept.lstat().st_mtime_ns, kept.lstat().st_uid) == before


def test_what_is_done_is_not_gone_on_with(tmp_path: pathlib.Path, folder: pathlib.Path, kept: pathlib.Path) -> None:
    """No further commit is made, but the file is removed."""
    script = tmp_path / "done.py"
    script.write_text(
        COUNTER.read_text().replace("while len(state.seen) < SAMPLES:", "while False:").split("assert state.total")[0]
    )
    done = job(tmp_path, 2, "--state-dir", str(folder), script=script)
    assert done.returncode == 0, done.stderr
    assert went_on(done) > 0
    assert not kept.exists()


@pytest.mark.ci
def test_two_jobs_in_one_folder(tmp_path: pathlib.Path, folder: pathlib.Path, kept: pathlib.Path) -> None:
    """A second job is refused while the first one runs, and changes no file. Later it resumes from the first job's last
    commit."""
    before = kept.read_bytes()
    with kept.with_name(f"{NAME}.lock").open("r+") as lock:  # as the first job holds it
        fcntl.lockf(lock, fcntl.LOCK_EX)
        done = job(tmp_path, 2, "--state-dir", str(folder))
        assert done.returncode == 1, done.stderr
        words = rf"rank 0: another job \(process \d+ on \S+\) uses {folder}: wait for its end, or give each job"
        assert re.search(words, done.stderr), done.stderr
        assert kept.read_bytes() == before
    done = job(tmp_path, 2, "--state-dir", str(folder))
    result(done)
    assert went_on(done) > 0
    assert list(folder.iterdir()) == []


def test_leftovers_of_killed_writers_go(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder.mkdir()
    ours, others = folder / f"{NAME}.abcd_123.new", folder / f"{NAME}.abcd_124.new"
    ours.write_bytes(b"hvdrun elastic state 1\n\0 half of")
    ours.chmod(0o600)
    others.write_text("somebody's text")
    result(job(tmp_path, 2, "--state-dir", str(folder)))
    assert [path.name for path in folder.iterdir()] == [others.name]


def test_another_program_s_state(tmp_path: pathlib.Path, folder: pathlib.Path, kept: pathlib.Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(COUNTER.read_text().replace("total=0.0)", "total=0.0, loss=1.0)"))
    done = job(tmp_path, 2, "--state-dir", str(folder), script=script)
    assert done.returncode == 1, done.stderr
    assert "the values in it are ['seen', 'step', 'total'], and those of this program ['loss', " in done.stderr
    assert kept.exists()


def test_a_state_with_a_save_of_its_own(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(
        COUNTER.read_text().replace("    def restore(self)", "    def save(self): super().save()\n\n    def restore(self)")
    )
    done = job(tmp_path, 2, "--state-dir", str(folder), script=script)
    assert done.returncode == 1, done.stderr
    assert "NotedState has a save() of its own, so --state-dir and a new rank 0 need its own saved_copy()" in done.stderr


def test_a_full_disk_is_told_once_and_training_goes_on(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    """In a mount namespace, with a disk of a few pages."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or not unshare:
        pytest.skip("needs root, to mount a small disk")
    folder.mkdir()
    words = 'mount -t tmpfs -o size=8k none "$0" && printf "%5000s" > "$0/filler" && exec "$@"'
    argv = [hvdrun.program(), "-np", "2", "--state-dir", str(folder), sys.executable, str(COUNTER)]
    done = subprocess.run(
        [unshare, "-m", "sh", "-c", words, str(folder), *argv],
        env={**os.environ, **environment(tmp_path, ELASTIC_PAUSE="0.02")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall("the state is not written to .*: .*No space left on device.* Training goes on", done.stderr)) == 1
    assert steps(tmp_path)[-1] * 2 * 4 >= SAMPLES
