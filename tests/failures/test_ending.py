"""Failed jobs: exceptions, Ctrl-C, and SIGKILL of hvdrun, mpirun and hvdrank, with nothing left behind."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from failures import signalled
from support import hvdrun
from support.forms import few

mpirun = pytest.mark.parametrize("mpirun", few(hvdrun.mpiruns()))
GONE_WITHIN_SECONDS = 3.0


def slack() -> float:
    """Seconds added to limits: these tests check remains, not the speed of a busy machine."""
    return hvdrun.within(5)


@mpirun
def test_the_failing_ranks_traceback_is_printed_last_and_once(mpirun: str, tmp_path: pathlib.Path) -> None:
    """The verdict has rank, host and exit code, and names the other ranks in one line. hvdrun prints the traceback last."""
    (tmp_path / "job.py").write_text(
        "import os, time, sys\n"
        "open('up' + os.environ['HVD_RANK'], 'w').close()\n"
        "if os.environ['HVD_RANK'] == '2':\n"
        "    while not (os.path.exists('up0') and os.path.exists('up1')): time.sleep(0.01)\n"
        "    raise ValueError('planted')\n"
        "time.sleep(60)\n"
    )
    args = ["-np", "3", "--mpirun", mpirun, *hvdrun.python_args(), "--output-filename", "logs", "job.py"]
    done = hvdrun.run(*args, cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "hvdrun: rank 2 on localhost ended with exit code 1 (ValueError: planted)"
    assert lines[1] == "        ranks 0-1 were stopped"
    assert lines[2] == "[2 localhost] Traceback (most recent call last):"
    assert lines[-1] == "[2 localhost] ValueError: planted"
    assert done.stderr.count("Traceback") == 1
    assert "ValueError: planted" in (tmp_path / "logs/rank.2/stderr").read_text()


LAST_WORDS = {
    "a fault": ("ctypes.string_at(0)", "was killed by signal 11 (SIGSEGV)", "job.py:2 (<module>)"),
    "an abort": ("os.abort()", "was killed by signal 6 (SIGABRT)", "job.py:2 (<module>)"),
    "file size": (
        "signal.signal(25, signal.SIG_DFL); resource.setrlimit(1, (9, 9)); open('big', 'w').write('x' * 99)",
        "was killed by signal 25 (SIGXFSZ)",
        "a file would have become larger than the limit (ulimit -f)",
    ),
}


@pytest.mark.parametrize("case", LAST_WORDS)
def test_a_fatal_signal_comes_with_its_place(case: str, tmp_path: pathlib.Path) -> None:
    """The line of Python, or the exceeded limit."""
    code, cause, place = LAST_WORDS[case]
    (tmp_path / "job.py").write_text(f"import hvd, ctypes, os, resource, signal\n{code}\n")
    done = hvdrun.run("-np", "1", *hvdrun.python_args(), "job.py", cwd=tmp_path)
    (headline,) = [line for line in done.stderr.splitlines() if line.startswith("hvdrun: ")]
    assert cause in headline
    assert place in headline


def test_a_handled_traceback_does_not_explain_a_kill(tmp_path: pathlib.Path) -> None:
    """A traceback that the rank caught and printed stays the rank's output, and is not part of the verdict."""
    (tmp_path / "job.py").write_text(
        "import os, traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\nos.kill(os.getpid(), 9)\n"
    )
    done = hvdrun.run("-np", "1", *hvdrun.python_args(), "job.py", cwd=tmp_path)
    lines = done.stderr.splitlines()
    verdict = lines.index("hvdrun: rank 0 on localhost was killed by signal 9 (SIGKILL)")
    assert lines.index("[0 localhost] ZeroDivisionError: division by zero") < verdict
    assert not any(line.startswith("[0 ") for line in lines[verdict:])


def test_sys_exit_code_of_a_script(tmp_path: pathlib.Path) -> None:
    """sys.exit(5) in one rank."""
    (tmp_path / "job.py").write_text(
        "import os, sys, time\n"
        "if os.environ['HVD_RANK'] == '0': open('up', 'w').close(), time.sleep(60)\n"
        "while not os.path.exists('up'): time.sleep(0.01)\n"
        "sys.exit(5)\n"
    )
    done = hvdrun.run("-np", "2", *hvdrun.python_args(), "job.py", cwd=tmp_path)
    assert done.returncode == 5
    assert done.stderr == "hvdrun: rank 1 on localhost ended with exit code 5\n        rank 0 was stopped\n"


def test_a_rank_killed_by_sigkill_is_named_as_such() -> None:
    """hvdrun's exit code is 137 (128 + 9)."""
    done = hvdrun.run("-np", "2", "--", "sh", "-c", '[ "$HVD_RANK" = 1 ] && kill -9 $$; sleep 60')
    assert done.returncode == 137
    assert done.stderr.startswith("hvdrun: rank 1 on localhost was killed by signal 9 (SIGKILL)\n")


@mpirun
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
def test_one_signal_ends_everything_within_the_grace(mpirun: str, number: int, code: int) -> None:
    """A single signal to hvdrun ends all processes of the job."""
    sleepers = hvdrun.Sleepers()
    with hvdrun.started("-np", "2", "--mpirun", mpirun, "--grace", "4", "--", *sleepers.command()) as job:
        sleepers.wait_for(6)
        at = time.monotonic()
        job.send_signal(number)
        assert job.wait(60) == code
        assert time.monotonic() - at < 4 + slack()
        assert job.stderr is not None
        assert hvdrun.said(job.stderr.read()).count("\n") == 1  # one line, without mpirun's output
    assert sleepers.alive() == []


def test_sigquit_ends_the_job_with_its_words_and_verdict(tmp_path: pathlib.Path) -> None:
    """^\\ on the terminal: the ranks can save their work, because they get SIGTERM."""
    script = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    with hvdrun.started("-np", "2", "--verdict-filename", "v.json", "--", "sh", "-c", script, cwd=tmp_path) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        for _ in range(2):
            assert job.stdout.readline().endswith("] up\n")
        job.send_signal(signal.SIGQUIT)
        assert job.wait(30) == 131
        assert job.stdout.read().count("] saved\n") == 2
        assert job.stderr.read().endswith("hvdrun: ended by signal 3 (SIGQUIT); all ranks have ended\n")
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert (verdict["outcome"], verdict["cause"], verdict["exit_code"]) == ("interrupted", "interrupted", 131)


def pending(pid: int) -> set[int]:
    """Returns the pending signals of a process. Linux discards a second signal of a number that is pending."""
    found = re.search(r"^ShdPnd:\t(\w+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found
    return {number for number in range(1, 65) if int(found[1], 16) >> (number - 1) & 1}


def test_ranks_that_ignore_the_signal_are_killed_after_the_grace() -> None:
    """A second Ctrl-C kills the ranks at once, without the rest of the grace period."""
    stubborn = ["sh", "-c", "trap '' INT TERM; echo deaf; while :; do sleep 0.1; done"]
    for grace, signals, limit in (("1", 1, 2.5), ("30", 2, 3.0)):
        with hvdrun.started("-np", "2", "--grace", grace, "--", *stubborn) as job:
            assert job.stdout is not None
            for _ in range(2):
                assert job.stdout.readline().endswith("] deaf\n")
            at = time.monotonic()
            for _ in range(signals):
                job.send_signal(signal.SIGINT)
                hvdrun.wait_until(lambda job=job: signal.SIGINT not in pending(job.pid), "hvdrun's look at the signal")
            assert job.wait(60) == 130
            assert time.monotonic() - at < min(limit + slack(), 25)  # the second signal does not wait for the 30 s


@mpirun
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_reaches_the_scripts_own_handler(mpirun: str, end: signal.Signals, tmp_path: pathlib.Path) -> None:
    """Each arrives as itself; Ctrl-C as a KeyboardInterrupt; ending signals leave the grace period for a checkpoint."""
    (tmp_path / "job.py").write_text(signalled.SCRIPT)
    with hvdrun.started("-np", "2", "--mpirun", mpirun, *hvdrun.python_args(), "job.py", cwd=tmp_path) as job:
        signalled.follow(job, job.send_signal, 2, end)
    assert sorted(p.name for p in tmp_path.glob("saved*")) == ["saved0", "saved1"]


def test_a_script_without_a_handler_ends_quietly_on_ctrl_c(tmp_path: pathlib.Path) -> None:
    """No traceback of a KeyboardInterrupt from every rank."""
    (tmp_path / "job.py").write_text("import time\nprint('up', flush=True)\nwhile True: time.sleep(0.02)\n")
    with hvdrun.started("-np", "2", *hvdrun.python_args(), "job.py", cwd=tmp_path) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        for _ in range(2):
            assert job.stdout.readline().endswith("] up\n")
        job.send_signal(signal.SIGINT)
        assert job.wait(30) == 130
        assert hvdrun.said(job.stderr.read()) == "hvdrun: interrupted; all ranks have ended\n"


def test_nohup(tmp_path: pathlib.Path) -> None:
    """A hangup of the terminal ends no job that nohup(1) started."""
    with hvdrun.started(
        "-np", "1", "--", "sh", "-c", "echo up; sleep 0.5; echo over",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as job:  # fmt: skip
        assert job.stdout is not None
        assert job.stdout.readline().endswith("] up\n")
        job.send_signal(signal.SIGHUP)
        assert job.stdout.readline().endswith("] over\n")
        assert job.wait(60) == 0


def find(who: str, job: int) -> int | None:
    """A process of the running job: hvdrun, mpirun, a watchdog or a guard."""
    below = hvdrun.children(job)
    if who == "hvdrun":
        return job
    mpirun_pid = below[0] if below else None
    if who == "mpirun" or mpirun_pid is None:
        return mpirun_pid
    watchdogs = hvdrun.children(mpirun_pid)
    watchdog = watchdogs[-1] if watchdogs else None
    if who == "watchdog" or watchdog is None:
        return watchdog
    guards = hvdrun.children(watchdog)
    return guards[0] if guards else None


@mpirun
@pytest.mark.parametrize("who", ["hvdrun", "mpirun", "watchdog", "guard"])
@pytest.mark.parametrize("seed", few(hvdrun.some_nightly(os.environ.get("HVD_TEST_SEEDS"), 2, 4)))
def test_kill_9_leaves_nothing(mpirun: str, who: str, seed: int) -> None:
    """No process is left, whenever the process dies, also before all ranks have started. Children in sessions of their own
    count too. tests/launcher has the tests without mpirun.
    """
    sleepers = hvdrun.Sleepers()
    moment = random.Random(f"{who}{seed}").uniform(0.02, 0.6) if seed else None
    try:
        args = ["--launcher", "mpirun", "-np", "2", "--mpirun", mpirun, "--", *sleepers.command()]
        with hvdrun.started(*args) as job:
            if moment is None:
                sleepers.wait_for(6)
            else:
                time.sleep(moment)
            victim = find(who, job.pid)
            if victim is None:
                pytest.skip(f"no {who} yet after {moment:.2f} s")
            os.kill(victim, signal.SIGKILL)
            code = job.wait(60)
            assert code != 0
            sleepers.wait_for(0, GONE_WITHIN_SECONDS + slack())
            assert job.stderr is not None
            if who != "hvdrun":
                assert hvdrun.said(job.stderr.read()).startswith("hvdrun: ")
    finally:
        sleepers.kill()


def test_start_timeout_names_who_did_not_come(tmp_path: pathlib.Path) -> None:
    """An mpirun that hangs: exit code 6 after the requested time."""
    fake = tmp_path / "bin/orterun"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\ntrap '' TERM\nsleep 100\n")
    fake.chmod(0o755)
    at = time.monotonic()
    argv = [hvdrun.program(), "--launcher", "mpirun", "-np", "2", "--mpirun", str(fake), "--start-timeout", "2.5", "--", "true"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=hvdrun.environment())
    assert done.returncode == 6
    assert time.monotonic() - at < 2.5 + 1 + slack()
    lines = done.stderr.splitlines()
    assert lines[0] == "hvdrun: waiting for 2 ranks to come up on localhost"
    assert lines[1] == "hvdrun: start: ranks 0-1 on localhost did not come up within 2.5 s"


def test_mpirun_that_fails_is_quoted(tmp_path: pathlib.Path) -> None:
    """hvdrun prints the output of an mpirun that failed before any rank started."""
    fake = tmp_path / "bin/orterun"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho ------; echo it is broken >&2; exit 9\n")
    fake.chmod(0o755)
    done = hvdrun.run("--launcher", "mpirun", "-np", "2", "--mpirun", str(fake), "--", "true")
    assert done.returncode == 4
    assert done.stderr.startswith(
        "hvdrun: start: mpirun ended with exit code 9 before ranks 0-1 on localhost came up\n        mpirun: it is broken\n"
    )


def test_end_with_parent() -> None:
    """hvd.run() sets --parent: the job ends when the calling Python is killed, even if that Python ignored signals."""
    sleepers = hvdrun.Sleepers()
    code = (
        "import os, signal, subprocess, sys\n"
        "for number in (signal.SIGTERM, signal.SIGCHLD): signal.signal(number, signal.SIG_IGN)\n"
        "me = ['--parent', str(os.getpid()), '--grace', '1', '--']\n"
        "subprocess.Popen([sys.argv[1], '-np', '1', *me, *sys.argv[2:]]).wait()\n"
    )
    argv = [sys.executable, "-c", code, hvdrun.program(), *sleepers.command()]
    with subprocess.Popen(argv, env=hvdrun.environment(), stderr=subprocess.DEVNULL) as parent:
        try:
            sleepers.wait_for(3)
        finally:
            parent.kill()
    sleepers.wait_for(0, 1 + GONE_WITHIN_SECONDS + slack())


def test_the_time_limit(tmp_path: pathlib.Path) -> None:
    """The ranks get the grace period; exit code 6."""
    script = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    for limit in ("1.5", "6", "30"):  # it counts from hvdrun's start, and the ranks must have started by then
        done = hvdrun.run("-np", "2", "--time-limit", limit, "--", "sh", "-c", script)
        assert done.returncode == 6
        if done.stdout.count("] up\n") == 2:
            break
    assert done.stderr.endswith(f"hvdrun: the time limit of {limit} s was reached; all ranks have ended\n")
    assert done.stdout.count("saved") == 2


def test_stop_and_go_on() -> None:
    """SIGTSTP stops the ranks, not hvdrun; SIGCONT continues them."""
    with hvdrun.started("-np", "1", "--", "sh", "-c", "echo $$; exec sleep 60") as job:
        assert job.stdout is not None
        assert job.stderr is not None
        pid = int(job.stdout.readline().split("] ")[1])

        job.send_signal(signal.SIGTSTP)
        hvdrun.wait_until(lambda: hvdrun.state(pid) == "T", "the rank's stop")
        line = hvdrun.next_line(job.stderr)
        assert line == f"hvdrun: the ranks are stopped; they go on with: kill -CONT {job.pid}\n"
        job.send_signal(signal.SIGCONT)
        hvdrun.wait_until(lambda: hvdrun.state(pid) in ("R", "S"), "the rank's going on")
        job.send_signal(signal.SIGINT)
        assert job.wait(60) == 130


def test_a_rank_cannot_speak_for_hvdrun(tmp_path: pathlib.Path) -> None:
    """Names of exceptions, files and functions cannot make a line that begins like hvdrun's, nor send escape sequences to a
    terminal."""
    evil = "\x1b[2K\rhvdrun: all is well\nhvdrun: rank 7 did it\x9b2J\u202e Grüße"
    (tmp_path / "job.py").write_text(f"class Bad(Exception): pass\nraise Bad({evil!r})\n")
    where = ["-H", "localhost:1", *hvdrun.python_args()]
    done = hvdrun.run(*where, "job.py", cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.split("\n")
    assert [line for line in lines if line.startswith("hvdrun")] == [
        "hvdrun: rank 0 on localhost ended with exit code 1 (Bad: \\x1b[2K)"
    ]
    assert "[0 localhost] Bad: \\x1b[2K\\rhvdrun: all is well" in lines
    name = "a\nhvdrun: all is well\x1b[A.py"
    done = hvdrun.run(*where, name, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.split("\n")[0] == "hvdrun: a\\nhvdrun: all is well\\x1b[A.py: there is no such file"
    assert "\x1b" not in done.stderr
