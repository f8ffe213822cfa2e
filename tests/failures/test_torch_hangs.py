"""Hangs in torch's own collectives: hvdrun names the missing rank, the collective and the rank's line. These jobs do not import
hvd."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from campaigns import hangs
from support import hvdrun
from support.forms import few

pytest.importorskip("torch")


def listen(job: subprocess.Popen[str], last: str, limit_seconds: float = 60) -> str:
    """Returns hvdrun's stderr up to the first line that contains `last`."""
    text, end = "", time.monotonic() + limit_seconds
    while last not in text:
        line = hvdrun.next_line(job.stderr)
        assert line and time.monotonic() < end, text
        text += line
    return text


def ask(job: subprocess.Popen[str], *words: str, typed: str = "") -> str:
    command = [hvdrun.program(), words[0], str(job.pid), *words[1:]]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=60, env=hvdrun.environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_rank_that_misses_a_collective(tmp_path: pathlib.Path) -> None:
    """hvdrun names the missing rank and its line. stacks, stacks --ops and attach show the rank; the verdict has the same
    text."""
    line = hangs.line_of("evaluation")
    with hvdrun.started("-np", "2", sys.executable, str(hangs.SCRIPT), "evaluation", "1", cwd=tmp_path) as job:
        said = listen(job, "its last was")
        assert re.search(
            rf"^hvdrun: rank 1 on \w+ is in planted_hang_job.py:{line} \(evaluation\); 1 rank has waited \d+ s for "
            r"all_reduce 6 of the default group \(\[7\] float32\)$",
            said,
            re.M,
        ), said
        assert f'planted_hang_job.py", line {line} in evaluation' in ask(job, "stacks")
        operations = ask(job, "stacks", "--ops")
        assert "waits for " in operations
        assert "rank 1 has not enqueued all_reduce 6 of the default group ([7] float32); rank 0 waits for it" in operations
        assert "'culprit', 1" in ask(job, "attach", "1", typed="p 'culprit', CULPRIT\nquit\n")
        job.send_signal(signal.SIGINT)
        end = job.communicate(timeout=60)[1]
        assert re.search(r"^hvdrun: interrupted; .*\n +until then:\n +rank 1 on \w+ is in planted_hang_job.py", end, re.M), end


@pytest.mark.parametrize("case", few(["order", "initless", "crossed", "loader", "rankless"]))
def test_other_hangs(case: str) -> None:
    outcome = hangs.one(case, culprit=1)
    assert outcome.right, outcome


@pytest.mark.ci
def test_a_long_evaluation_is_named_and_ends_no_job() -> None:
    """The user's limit waits meanwhile."""
    outcome = hangs.one("healthy_evaluation", 1, more=("--stall-check-shutdown-time-seconds", "3"))
    assert outcome.right, outcome
    place = rf"planted_healthy_job.py:({'|'.join(str(hangs.line_of('healthy_evaluation') + n) for n in (-1, 0))}) \(evaluate\)"
    assert re.search(rf"rank 1 on \w+ is in {place}, evaluating, which ends by itself; 1 rank has waited", outcome.about), (
        outcome
    )
    assert "rank 1 on localhost does not hang: --stall-check-shutdown-time-seconds waits" in outcome.about


MPI_JOB = """
import time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    time.sleep(100)
print("waits", flush=True)
MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.ci
def test_where_ranks_of_another_library_stand(tmp_path: pathlib.Path) -> None:
    """The line of Python, and the wait in native frames."""
    pytest.importorskip("mpi4py")
    (tmp_path / "job.py").write_text(MPI_JOB)
    with hvdrun.started("-np", "2", sys.executable, "job.py", cwd=tmp_path) as job:
        assert "waits" in hvdrun.next_line(job.stdout)
        # Rank 0 may be just before the call, and rank 1 may still import.
        stands = lambda: all(words in ask(job, "stacks") for words in ("PMPI_Barrier", "line 5 in <module>"))  # noqa: E731
        hvdrun.wait_until(stands, "the ranks' waits", 60)
        said = ask(job, "stacks")
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=60)
    waits, sleeps = said.split("rank 1 on")
    assert "PMPI_Barrier" in waits and 'job.py", line 7 in <module>' in waits, said
    assert 'job.py", line 5 in <module>' in sleeps, said


UNLIKE_SIZES = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(3):
    dist.all_reduce(torch.ones(8 - dist.get_rank() * (step == 2)))
dist.barrier()
"""


@pytest.mark.ci
def test_tensors_of_unlike_sizes(tmp_path: pathlib.Path) -> None:
    """gloo ends the rank on a thread of its own; the verdict names the main thread's line."""
    (tmp_path / "job.py").write_text(UNLIKE_SIZES)
    arguments = ["-np", "2", "--verdict-filename", str(tmp_path / "v.json"), sys.executable, "job.py"]
    done = hvdrun.run(*arguments, cwd=tmp_path)
    assert "op.preamble.length <= op.nbytes" in done.stderr
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert verdict["cause"] == "mismatch"
    assert verdict["frame"]["line"] in (7, 8), verdict  # gloo may find the difference after the call


POLLED_BARRIER = """
import os, pathlib, time
rank = int(os.environ["RANK"])
epoch = 3 if rank == 0 else 4
pathlib.Path(f"epoch{epoch}.{rank}").touch()
while not pathlib.Path(f"epoch{epoch}.{1 - rank}").exists():
    time.sleep(0.05)
"""


@pytest.mark.ci
def test_ranks_that_poll_are_idle(tmp_path: pathlib.Path) -> None:
    """No collective is open.  Each rank waits for a file that the other one never makes."""
    (tmp_path / "job.py").write_text(POLLED_BARRIER)
    began = time.monotonic()
    with hvdrun.started("-np", "2", sys.executable, "job.py", cwd=tmp_path) as job:
        said = listen(job, "are in job.py", limit_seconds=150)
        assert 60 < time.monotonic() - began < 120
        job.send_signal(signal.SIGINT)
        end = job.communicate(timeout=60)[1]
    assert re.search(r"hvdrun: no rank has computed or printed for \d+ s:\n +ranks 0-1 on \w+ are in job.py:[67]\n", said), said
    assert "no rank has computed or printed" in end  # the verdict repeats it


def test_the_program_s_own_sitecustomize_runs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.theirs = 1\n")
    program = "import sys; print(sys.theirs, [p for p in sys.path if 'proc' in p], sys.modules['sitecustomize'].__file__)"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = hvdrun.run("-np", "1", sys.executable, "-c", program, env={"PYTHONPATH": path})
    assert f"1 [] {tmp_path}/sitecustomize.py" in done.stdout, done.stderr
