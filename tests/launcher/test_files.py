"""Files that a job removes and writes: only its own, with a message if that is impossible."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from support import hvdrun

SOMEBODY = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user's")


def alone(folder: pathlib.Path) -> dict[str, str]:
    """An environment that puts a job's folder there."""
    return {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": ""}


def test_a_start_removes_nothing_but_what_dead_jobs_left(tmp_path: pathlib.Path) -> None:
    """Folders that only look like a job's stay, whatever their age; that of a killed hvdrun is removed."""
    kept = [tmp_path / name for name in ("hvdrun-0.1.0", "hvdrun-results", "hvdrun-abcdef", "hvdrun-abcdefgh", "hvdrun-")]
    for folder in kept:
        folder.mkdir()
        (folder / "thesis.tex").write_text("precious")
        os.utime(folder, (0, 0))
    (tmp_path / "hvdrun-aaaaaaaa").symlink_to(kept[0])
    before = set(tmp_path.iterdir())
    with hvdrun.started("-np", "1", "--", "sleep", "60", env=alone(tmp_path)) as job:
        (left,) = hvdrun.wait_until(lambda: set(tmp_path.iterdir()) - before, "the job's folder")
        hvdrun.wait_until((left / "status.json").exists, "its first moments")
        with hvdrun.started("-np", "1", "--", "true", env=alone(tmp_path)) as other:
            assert other.wait(60) == 0
        assert left.exists()
        job.kill()
        job.wait(10)
    # A user's entry below one of our names is removed with it; the target of a link is not.
    (left / "link").symlink_to(kept[1])
    assert hvdrun.run("-np", "1", "--", "true", env=alone(tmp_path)).returncode == 0
    assert set(tmp_path.iterdir()) == before
    assert all((folder / "thesis.tex").read_text() == "precious" for folder in kept)


@needs_root
@pytest.mark.parametrize("umask", [0o022, 0o777])
def test_another_user_and_any_umask(tmp_path: pathlib.Path, umask: int) -> None:
    """A user with a restrictive umask still gets the job, and no folder stays."""
    home = pathlib.Path("/tmp") / f"hvd-home-{os.getpid()}-{umask}"  # pytest's own folders are closed to others
    home.mkdir(mode=0o700)
    os.chown(home, SOMEBODY, SOMEBODY)
    try:
        try:
            done = subprocess.run(
                [hvdrun.program(), "-np", "2", "--output-filename", "logs", "--", "echo", "there"],
                cwd=home,
                user=SOMEBODY,
                group=SOMEBODY,
                extra_groups=[],
                umask=umask,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=hvdrun.environment(HOME=str(home), **alone(home)),
                timeout=60,
            )
        except PermissionError:
            pytest.skip("hvdrun lies where other users cannot run it")
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["[0 localhost] there", "[1 localhost] there"]
        assert [path.name for path in home.iterdir()] == ["logs"]
        assert (home / "logs/rank.1/stdout").read_text() == "there\n"
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", str(home)], check=True)


@needs_root
@pytest.mark.skipif(not shutil.which("unshare"), reason="a small file system of its own needs unshare")
@pytest.mark.parametrize("room", ["size=16k", "nr_inodes=3", "nr_inodes=4", "nr_inodes=5", "nr_inodes=6"])
def test_a_job_where_the_temporary_folder_is_full(tmp_path: pathlib.Path, room: str) -> None:
    """The job continues elsewhere, or one line names the full disk, also if that shows only during the ranks' start."""
    full = tmp_path / "full"
    full.mkdir()
    mount = (
        'mount -t tmpfs -o "$0" tmpfs "$TMPDIR" && { head -c 1m /dev/zero >"$TMPDIR/big"; "$@"; status=$?; ls -A "$TMPDIR"; '
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount + "exit $status; }", room, hvdrun.program(), "-np", "2", "--", "true"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=hvdrun.environment(**alone(full)),
        timeout=60,
    )
    words = [line for line in done.stderr.splitlines() if line.startswith("hvdrun: ")]
    if room == "size=16k" or done.returncode == 0:
        assert (done.returncode, words) == (0, []), done.stderr
    else:
        assert done.returncode == 4, (done.returncode, done.stderr)
        assert len(words) == 1 and "No space left on device" in words[0], done.stderr
    assert done.stdout == "big\n"


@needs_root
def test_output_goes_through_nobody_elses_links(tmp_path: pathlib.Path) -> None:
    """Another user made the names beforehand, in a folder that is open to all: our files do not change."""
    mine = tmp_path / "mine"
    mine.write_text("precious\n")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)

    def trap(name: str, target: pathlib.Path) -> str:
        (shared / name).symlink_to(target)
        os.lchown(shared / name, SOMEBODY, SOMEBODY)
        return str(shared / name)

    (shared / "logs/rank.0").mkdir(parents=True)
    trap("logs/rank.0/stdout", mine)
    told = "leads through a link of another user's (uid 54321)\n        name the place that is meant, without the link\n"
    for option, path, code in (
        ("--output-filename", str(shared / "logs"), 4),
        ("--output-filename", trap("folder", tmp_path), 4),
        ("--timeline-filename", trap("t.json", mine), 2),
        ("--timeline-filename", trap("new.json", tmp_path / "made"), 2),
    ):
        done = hvdrun.run("-np", "1", option, path, "--", "true")
        assert done.returncode == code, (option, done.stderr)
        assert done.stderr.endswith(told), done.stderr
        assert path in done.stderr
    done = hvdrun.run("-np", "1", "--results", trap("results", mine), "--", "true")
    assert told in done.stderr
    assert mine.read_text() == "precious\n"
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "shared"}


def test_our_own_links_and_devices_go_on_working(tmp_path: pathlib.Path) -> None:
    """Our folder that is a link, a timeline link without a target, one into a FIFO."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    options = ["--output-filename", "link/logs", "--timeline-filename", "/dev/null"]
    assert hvdrun.run("-np", "1", *options, "--", "echo", "there", cwd=tmp_path).returncode == 0
    assert (tmp_path / "real/logs/rank.0/stdout").read_text() == "there\n"
    os.mkfifo(tmp_path / "fifo")
    with hvdrun.started("-np", "1", "--timeline-filename", "fifo", "--", "true", cwd=tmp_path) as job:
        events = json.loads((tmp_path / "fifo").read_text())
        assert job.wait(60) == 0
    assert events[-1]["name"] == "hvd_end"


def test_output_folder_has_this_jobs_ranks_only(tmp_path: pathlib.Path) -> None:
    """Files of an earlier job's ranks are removed, but never a file that hvdrun has not made."""
    logs = tmp_path / "logs"

    def write(ranks: int, word: str) -> subprocess.CompletedProcess[str]:
        return hvdrun.run("-np", str(ranks), "--output-filename", "logs", "--", "echo", word, cwd=tmp_path)

    def there() -> list[str]:
        return sorted(str(p.relative_to(logs)) for p in logs.glob("rank.*/*"))

    assert write(11, "first").returncode == 0
    (logs / "rank.03/notes").write_text("precious")
    (logs / "results").mkdir()
    for ranks in (2, 1):
        done = write(ranks, "second")
        assert done.returncode == 0, done.stderr
        assert there() == sorted(["rank.03/notes", *(f"rank.{r}/{n}" for r in range(ranks) for n in ("stdout", "stderr"))])
        assert (logs / "rank.0/stdout").read_text() == "second\n"
    assert (logs / "results").is_dir()

    (logs / "rank.7").mkdir()
    (logs / "rank.7/stdout").write_text("precious")
    done = write(2, "third")
    assert done.returncode == 4, done.stderr
    assert "logs: has rank.7, which is of no rank of this job\n        name another folder, or remove rank.7" in done.stderr
    assert (logs / "rank.7/stdout").read_text() == "precious"
    assert (logs / "rank.0/stdout").read_text() == "second\n"


def test_output_folder_takes_one_job_at_a_time(tmp_path: pathlib.Path) -> None:
    args = ["-np", "1", "--output-filename", str(tmp_path / "logs"), "--"]
    with hvdrun.started(*args, "sh", "-c", "echo first; exec sleep 60") as job:
        first = tmp_path / "logs/rank.0/stdout"
        hvdrun.wait_until(lambda: first.exists() and first.read_text() == "first\n", "its first line")
        done = hvdrun.run(*args, "echo", "second")
        assert done.returncode == 4, done.stderr
        assert "logs: another job writes its output there\n        name another folder\n" in done.stderr
        assert first.read_text() == "first\n"
        job.kill()
        job.wait(10)
    done = hvdrun.run(*args, "echo", "second")
    assert done.returncode == 0, done.stderr
    assert first.read_text() == "second\n"


@pytest.mark.parametrize("option", ["--verdict-filename", "--report-filename", "--metrics"])
def test_a_result_that_could_not_be_written_is_refused_at_the_start(option: str, tmp_path: pathlib.Path) -> None:
    for name, why in (
        ("none/x.json", "'none/x.json' cannot be written: none: No such file or directory"),
        (".", "'.' is a folder"),
    ):
        done = hvdrun.run("-np", "1", option, name, "--", "touch", "ran", cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.startswith(f"hvdrun: {option}: {why}\n"), done.stderr
    assert not (tmp_path / "ran").exists()


@needs_root
@pytest.mark.parametrize("option", ["--verdict-filename", "--report-filename", "--metrics"])
def test_a_result_that_would_go_to_another_user_is_refused_at_the_start(option: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("elsewhere")
    for name, why in (
        ("file", "belongs to another user (uid 65534)"),
        ("link", "leads through a link of another user's (uid 65534)"),
    ):
        os.lchown(tmp_path / name, 65534, 65534)
        done = hvdrun.run("-np", "1", option, name, "--", "touch", "ran", cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"hvdrun: {option}: cannot write {name}: {why}\n"), done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_full_disk_is_called_so(tmp_path: pathlib.Path) -> None:
    """On standard output, of a job and of printed information."""
    with pathlib.Path("/dev/full").open("w") as full:
        with hvdrun.started("-np", "1", "--grace", "1", "--", "yes", stdout=full) as job:
            assert job.stderr is not None
            assert hvdrun.said(job.stderr.read()) == (
                "hvdrun: standard output cannot be written: No space left on device; all ranks have ended\n"
                "        make room there, or send the output elsewhere\n"
            )
            assert job.wait(30) == 4
        with hvdrun.started("--help", stdout=full) as job:
            assert job.wait(30) == 4
            assert job.stderr is not None
            assert job.stderr.read() == "hvdrun: standard output: cannot be written: No space left on device\n"


def listed(folder: pathlib.Path) -> list[dict[str, object]]:
    done = hvdrun.run("ps", "--json", env=alone(folder))
    return [job for job in json.loads(done.stdout) if str(folder) in str(job["payload"])]


def test_a_job_that_cannot_answer_is_seen_and_can_be_ended(tmp_path: pathlib.Path) -> None:
    """Stopped by SIGSTOP; without a free descriptor, as strangers' connections can cause."""
    program = tmp_path / "nap"
    program.write_text("#!/bin/sh\necho up\nexec sleep 60\n")
    program.chmod(0o755)
    env = alone(tmp_path)
    with hvdrun.started("-np", "2", "--grace", "1", "--", str(program), env=env) as job:
        assert job.stdout is not None
        for _ in range(2):
            job.stdout.readline()
        (row,) = listed(tmp_path)
        assert {**row, "job": "", "started": 0} == {
            "job": "",
            "pid": job.pid,
            "np": 2,
            "hosts": ["localhost"],
            "ended": 0,
            "started": 0,
            "payload": str(program),
            "grace": 1,
            "state": "runs",
        }
        os.kill(job.pid, signal.SIGSTOP)
        hvdrun.wait_until(lambda: hvdrun.state(job.pid) == "T", "its stop")
        (row,) = listed(tmp_path)
        assert (row["state"], row["ended"]) == ("stopped", None)
        (line,) = [line.split() for line in hvdrun.run("ps", env=env).stdout.splitlines() if str(program) in line]
        assert line[4:] == ["stopped", "localhost", str(program)]
        told = hvdrun.run("stacks", str(job.pid), env=env)
        assert told.stderr == (
            f"hvdrun: {row['job']}: is stopped and cannot answer\n        kill -CONT {job.pid} lets it go on\n"
        )
        os.kill(job.pid, signal.SIGCONT)
        files = len(os.listdir(f"/proc/{job.pid}/fd"))
        subprocess.run(["prlimit", "--pid", str(job.pid), f"--nofile={files}:{files}"], check=True)
        (row,) = hvdrun.wait_until(lambda: [r for r in listed(tmp_path) if r["state"] != "stopped"], "its going on")
        assert row["state"] == "silent"
        with contextlib.ExitStack() as callers:  # more connections than a job without accept() can queue
            for _ in range(40):
                caller = callers.enter_context(socket.socket(socket.AF_UNIX))
                caller.setblocking(False)
                caller.connect_ex(str(next(tmp_path.glob("hvdrun-*/commands.sock"))))
            assert [r["state"] for r in listed(tmp_path)] == ["silent"]
        os.kill(job.pid, signal.SIGSTOP)
        unnamed = hvdrun.run("kill", env=env)  # jobs of other tests may run beside it
        assert unnamed.returncode == 2
        assert unnamed.stderr.startswith(f"hvdrun: kill: which job?\n        hvdrun kill {row['job']} ends ") or (
            unnamed.stderr.endswith(" jobs run here\n        name one: hvdrun ps lists them\n")
        )
        assert hvdrun.run("kill", str(job.pid), env=env).stdout == f"ending job {row['job']}\n"
        assert job.wait(30) == 143
    assert [path.name for path in tmp_path.iterdir()] == ["nap"]


@pytest.mark.parametrize("command", ["ps", "stacks", "kill"])
def test_help_of_the_commands(command: str) -> None:
    done = hvdrun.run(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: hvdrun {command} ")
    done = hvdrun.run(command, "--jsn")
    assert done.returncode == 2
    assert done.stderr.startswith(f"hvdrun: --jsn: hvdrun {command} has no such option\n        hvdrun {command} --help")


def test_a_job_whose_hvdrun_does_not_end_is_killed(tmp_path: pathlib.Path) -> None:
    """An hvdrun that is held as by a debugger: SIGKILL after the grace period; its guards end the ranks."""
    sleepers = hvdrun.Sleepers()
    holder = (
        "import ctypes, sys\n"
        "libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])\n"
        "if libc.ptrace(0x4206, pid, None, None) or libc.ptrace(0x4207, pid, None, None): sys.exit('no')\n"  # SEIZE, INTERRUPT
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    try:
        with hvdrun.started("-np", "1", "--grace", "0", "--", *sleepers.command(), env=alone(tmp_path)) as job:
            sleepers.wait_for(3)
            hvdrun.wait_until(lambda: any(tmp_path.glob("hvdrun-*/status.json")), "its first moments")
            argv = [sys.executable, "-c", holder, str(job.pid)]
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
                assert held.stdout is not None
                assert held.stdin is not None
                if held.stdout.readline() != "held\n":
                    pytest.skip("no process may be traced here")
                hvdrun.wait_until(lambda: hvdrun.state(job.pid) == "t", "its stop")
                begin = time.monotonic()
                done = hvdrun.run("kill", str(job.pid), env=alone(tmp_path))
                held.stdin.close()
            assert done.returncode == 0
            assert "its hvdrun is killed, and its guards end the ranks" in done.stderr
            assert time.monotonic() - begin >= 5
            assert job.wait(60) == -signal.SIGKILL
        sleepers.wait_for(0)
    finally:
        sleepers.kill()
