"""Whole jobs on this machine, with each installed Open MPI."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import time
import zipapp

import pytest

from support import hvdrun
from support.forms import few

mpirun = pytest.mark.parametrize("mpirun", few(hvdrun.mpiruns()))


def tagged(text: str, rank: int) -> list[str]:
    """Lines of one rank, without the tag."""
    tag = f"[{rank} localhost] "
    return [line.removeprefix(tag) for line in text.splitlines() if line.startswith(tag)]


@mpirun
def test_streams_stay_apart_and_are_tagged(mpirun: str) -> None:
    """stdout goes to stdout, stderr to stderr, in whole lines, without an escape byte into a pipe."""
    done = hvdrun.run(
        "-np", "2", "--mpirun", mpirun, "--", "sh", "-c", "echo out $HVD_RANK; echo err $HVD_RANK >&2; printf end"
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert tagged(done.stdout, rank) == [f"out {rank}", "end"]
        assert tagged(done.stderr, rank) == [f"err {rank}"]
    assert "\x1b" not in done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 4
    assert len(done.stderr.splitlines()) == 2


@mpirun
@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143), ("exit 255", 255)]
)
def test_exit_codes(mpirun: str, script: str, code: int) -> None:
    """The code of the first failing rank; 128 + signal."""
    done = hvdrun.run("-np", "2", "--mpirun", mpirun, "--", "sh", "-c", f'[ "$HVD_RANK" = 0 ] || exec sleep 0.2; {script}')
    assert done.returncode == code, done.stderr
    if code:
        assert done.stderr.startswith("hvdrun: rank 0 on localhost ")


@mpirun
def test_python_payloads(mpirun: str, tmp_path: pathlib.Path) -> None:
    """A script with arguments and -m module."""
    (tmp_path / "job.py").write_text("import sys, os; print(sys.argv[1:], os.environ['HVD_SIZE'], os.getcwd())\n")
    where = ["-np", "2", "--mpirun", mpirun, *hvdrun.python_args()]
    done = hvdrun.run(*where, "job.py", "--x", "a b", cwd=tmp_path)
    assert tagged(done.stdout, 1) == [f"['--x', 'a b'] 2 {tmp_path}"], done.stderr
    done = hvdrun.run(*where, "-m", "job", "y", cwd=tmp_path)
    assert tagged(done.stdout, 0) == [f"['y'] 2 {tmp_path}"], done.stderr


def test_python_programs_without_py(tmp_path: pathlib.Path) -> None:
    """What torchrun runs: a zip, a folder with __main__.py, and a file that only Python can run."""
    program = "import sys; print(sys.argv)\n"
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__main__.py").write_text(program)
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.zip")
    (tmp_path / "plain").write_text(program)
    (tmp_path / "bang.script").write_text("#!/usr/bin/env -S python3 -u\n" + program)
    (tmp_path / "runs").write_text("#!/usr/bin/env python3\n" + program)
    (tmp_path / "runs").chmod(0o755)
    for name in ("app.pyz", "./app.pyz", "app.zip", "app", "./app", "plain", "./plain", "bang.script", "runs"):
        done = hvdrun.run("-np", "1", *hvdrun.python_args(), name, "x", cwd=tmp_path)
        assert tagged(done.stdout, 0) == [f"['{name}', 'x']"], done.stderr
    # A program stays one, and a file of another kind is refused.
    (tmp_path / "own").write_text("#!/bin/sh\necho own\n")
    (tmp_path / "notes.txt").write_text(program)
    (tmp_path / "empty").mkdir()
    for name in ("own", "notes.txt", "empty", "./own"):
        done = hvdrun.run("-np", "1", name, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
    (tmp_path / "own").chmod(0o755)
    assert tagged(hvdrun.run("-np", "1", "./own", cwd=tmp_path).stdout, 0) == ["own"]
    (tmp_path / "true").write_text("no program")
    assert hvdrun.run("-np", "1", "true", cwd=tmp_path).returncode == 0
    assert hvdrun.run("-np", "1", "--", "plain", cwd=tmp_path).returncode == 2


def test_a_pickle_needs_no_file_where_the_ranks_run(tmp_path: pathlib.Path) -> None:
    """A pickled function: plain pickle of a builtin suffices."""
    import pickle

    (tmp_path / "job.pkl").write_bytes(pickle.dumps((print, ("from a pickle",), {})))
    done = hvdrun.run("-np", "2", *hvdrun.python_args(), "job.pkl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert tagged(done.stdout, 0) == tagged(done.stdout, 1) == ["from a pickle"]


@mpirun
def test_the_environment_travels(mpirun: str) -> None:
    """All of it, with line ends and equal signs, but without secrets and variables of one place."""
    env = {
        "MINE": "a=b\n c;d",
        "BASH_FUNC_f%%": "() { :; }",
        "OLDPWD": "/x",
        "CUDA_VISIBLE_DEVICES": "3",
        "HOROVOD_CYCLE_TIME": "5",
    }
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    args = ["-np", "1", "--mpirun", mpirun, "--cache-capacity", "7", "--", sys.executable, "-c", code]
    done = hvdrun.run(*args, env=env)
    import json

    got = json.loads(tagged(done.stdout, 0)[0])
    assert got["MINE"] == "a=b\n c;d"
    assert got["HOROVOD_CYCLE_TIME"] == "5"
    assert got["HOROVOD_CACHE_CAPACITY"] == "7"
    assert got["CUDA_VISIBLE_DEVICES"] == "3"  # this machine's own value
    for name in ("BASH_FUNC_f%%", "OLDPWD", "HVD_JOB_KEYS", "HOROVOD_CONTROLLER"):
        assert name not in got
    assert got["HVD_RANK"] == "0"


def test_cores_are_shared_out() -> None:
    """Each rank has its own, unless an option says otherwise."""
    code = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one core only")
    done = hvdrun.run("-np", "2", "--", sys.executable, "-c", code)
    first, second = tagged(done.stdout, 0)[0], tagged(done.stdout, 1)[0]
    assert first != second
    done = hvdrun.run("-np", "2", "--no-bind", "--", sys.executable, "-c", code)
    assert tagged(done.stdout, 0)[0].startswith(str(allowed))


OPTIONS_AT_WORK = """
import glob, os, time
import hvd.numpy as hvd, numpy as np
names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
print("gloo", hvd.gloo_built(), *(os.environ["HOROVOD_" + name] for name in names), flush=True)
before = set(os.listdir("/proc/self/task"))
hvd.init()
masks = [os.sched_getaffinity(int(t)) for t in set(os.listdir("/proc/self/task")) - before]
print("masks", {1 - hvd.rank()} in masks, flush=True)
time.sleep(7 * hvd.rank())
hvd.allreduce(np.ones(1))
"""


def test_horovods_options_at_work() -> None:
    """--gloo's variables, --thread-affinity and --log-with-timestamp have their effects."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    args = ["-np", "2", "--gloo", "--thread-affinity", "1,0", "--log-with-timestamp", "--stall-check-warning-time-seconds", "1"]
    done = hvdrun.run(*args, "--", sys.executable, "-c", OPTIONS_AT_WORK)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert tagged(done.stdout, rank) == [f"gloo True {rank} 2 {rank} 2 0 1 localhost", "masks True"], done.stderr
    assert re.search(r"hvd: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} some ranks wait", done.stderr), done.stderr
    train = [sys.executable, "-c", "import hvd.numpy as h; h.init()"]
    done = hvdrun.run("-np", "2", "--thread-affinity", "1", "--", *train)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("THREAD_AFFINITY lists too few cores: 1 core for 2 ranks") == 1, done.stderr
    for wrong, said in (
        ("a,b", "list of cores"),
        ("4096,0", "list of cores"),
        ("900,900", "no core"),
    ):
        done = hvdrun.run("-np", "2", "--thread-affinity", wrong, "--", *train)
        assert done.returncode != 0 and "HOROVOD_THREAD_AFFINITY" in done.stderr and said in done.stderr, done.stderr


def test_ranks_stay_on_the_cores_that_hvdrun_was_given() -> None:
    """With taskset or a batch system, two parallel jobs use separate cores."""
    last = max(os.sched_getaffinity(0))
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    args = ["-np", "2", "--", sys.executable, "-c", code]
    done = hvdrun.run(*args, preexec_fn=lambda: os.sched_setaffinity(0, {last}))
    assert [tagged(done.stdout, rank) for rank in (0, 1)] == [[f"[{last}]"]] * 2, done.stderr


def test_output_files(tmp_path: pathlib.Path) -> None:
    """DIR/rank.<padded>/stdout and stderr, raw; the console also shows the output."""
    args = ["-np", "11", "--output-filename", "logs", "--", "sh", "-c", "printf 'a\\rb\\n'; echo e$HVD_RANK >&2"]
    done = hvdrun.run(*args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "logs").iterdir()) == [".hvdrun", *(f"rank.{r:02}" for r in range(11))]
    assert (tmp_path / "logs/rank.03/stdout").read_bytes() == b"a\rb\n"
    assert (tmp_path / "logs/rank.10/stderr").read_text() == "e10\n"
    assert len(tagged(done.stderr, 10)) == 1


def test_timestamps() -> None:
    """The time of day before the tag."""
    done = hvdrun.run("-np", "1", "--prefix-output-with-timestamp", "--", "echo", "hi")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d\d\d \[0 localhost\] hi\n", done.stdout)


def test_a_reader_that_goes_away_ends_the_job() -> None:
    """hvdrun ends the job when its stdout is closed, as by `hvdrun … | head -1`."""
    with hvdrun.started("-np", "2", "--grace", "1", "--", "yes") as job:
        assert job.stdout is not None
        job.stdout.readline()
        job.stdout.close()
        assert job.wait(30) == 128 + 13


def on_terminal(env: dict[str, str]) -> bytes:
    """hvdrun's output with a terminal as stdout."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [hvdrun.program(), "-np", "2", "--no-collapse", "--", "printf", r"\r10%%\r50%%\r99%%\ndone\n"],
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=subprocess.DEVNULL,
        env=hvdrun.environment(TERM="xterm", **env),
    ) as job:
        os.close(its)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:
            pass  # the end of a terminal
        job.wait(30)
    os.close(ours)
    return text


def test_colour_only_on_a_terminal_that_wants_it() -> None:
    """NO_COLOR and TERM=dumb turn it off; a progress bar's states are lines of their own."""
    text = on_terminal({})
    assert b"\x1b[36m[0 localhost]\x1b[0m done\r\n" in text
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_terminal(env) if "TERM" not in env else on_terminal_dumb()
        assert b"\x1b" not in plain
        assert b"[1 localhost] 99%\r\n" in plain


def on_terminal_dumb() -> bytes:
    """on_terminal() with TERM=dumb."""
    before = hvdrun.environment
    try:
        hvdrun.environment = lambda **extra: before(**{**extra, "TERM": "dumb"})
        return on_terminal({})
    finally:
        hvdrun.environment = before


def test_nothing_is_left_in_the_temporary_folder(tmp_path: pathlib.Path) -> None:
    """The job's folder and mpirun's are gone."""
    done = hvdrun.run("-np", "2", "--", "true", env={"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": ""})
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_lines_of_many_ranks_become_one() -> None:
    """--collapse, on by default on a terminal: equal lines of all ranks appear once."""
    done = hvdrun.run("-np", "4", "--collapse", "--", "sh", "-c", "echo alike; echo mine $HVD_RANK; echo end >&2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    count = 0  # a rank that starts late prints separately
    for line in lines:
        if line.endswith("] alike"):
            first, _, last = line.split()[0].removeprefix("[").partition("-")
            count += int(last or first) - int(first) + 1 if "," not in line else len(line.split()[0].split(","))
    assert count == 4 or any("," in line for line in lines)
    assert sorted(line for line in lines if "mine" in line) == [f"[{r} localhost] mine {r}" for r in range(4)]


def test_the_report() -> None:
    """With --report, on stderr, after everything else."""
    done = hvdrun.run("-np", "2", "--report", "--", "true")
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"hvdrun: 2 ranks, \d+\.\d s; \d+\.\d cores in use on average", lines[0])
    assert re.fullmatch(r" {8}memory peak \d+ MiB \(rank \d on localhost\), least \d+ MiB \(rank \d\)", lines[1])


def test_the_report_for_programs(tmp_path: pathlib.Path) -> None:
    """--report --json: one line, the last one, with every rank."""
    script = '[ "$HVD_RANK" = 1 ] || { touch up; exec sleep 60; }; until [ -e up ]; do sleep 0.05; done; exit 1'
    args = ["-np", "2", "--report", "--json", "--report-filename", "report.json", "--", "sh", "-c", script]
    done = hvdrun.run(*args, cwd=tmp_path)
    report = json.loads(done.stderr.splitlines()[-1])
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert (report["exit_code"], report["first_cause"]) == (1, 1)
    first, second = report["ranks"]
    assert (first["rank"], first["ended"]) == (0, "was stopped")
    assert (second["rank"], second["ended"], second["exit_code"]) == (1, "ended with exit code 1", 1)
    assert 0 < report["wall_seconds"] < 60
    assert all(r["peak_bytes"] > 0 and r["cpu_seconds"] >= 0 for r in report["ranks"])


def test_the_culprits_last_lines_are_shown_again_when_out_of_sight(tmp_path: pathlib.Path) -> None:
    """Other ranks have printed many lines since."""
    until = "while [ ! -e {} ]; do sleep 0.05; done; "
    first = "echo cause; exec >&- 2>&-; " + until.format("end") + "exit 3"
    script = f'[ "$HVD_RANK" = 0 ] && {{ {first}; }}; ' + until.format("go") + "seq 50; sleep 60"
    with hvdrun.started("-np", "2", "--", "sh", "-c", script, cwd=tmp_path) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        assert job.stdout.readline() == "[0 localhost] cause\n"
        (tmp_path / "go").touch()
        while job.stdout.readline() not in ("[1 localhost] 50\n", ""):
            pass
        (tmp_path / "end").touch()
        assert job.wait(60) == 3
        assert job.stderr.read().endswith("        its last lines were:\n[0 localhost] cause\n")


@pytest.mark.nightly
def test_256_ranks_at_once() -> None:
    """Far more ranks than cores: each ends with success, and no line is lost."""
    script = "i=0; while [ $i -lt 40 ]; do echo line $i of $HVD_RANK; i=$((i + 1)); done; exec true"
    begin = time.monotonic()
    done = hvdrun.run("-np", "256", "--start-timeout", "240", "--report", "--json", "--", "sh", "-c", script, timeout=300)
    print(f"256 ranks in {time.monotonic() - begin:.1f} s")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stderr.splitlines()[-1])
    assert [(r["rank"], r["ended"]) for r in report["ranks"]] == [(r, "finished") for r in range(256)]
    wanted = sorted(f"[{r} localhost] line {i} of {r}" for r in range(256) for i in range(40))
    assert sorted(done.stdout.splitlines()) == wanted
