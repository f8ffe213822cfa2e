"""Several programs in one job: hvdrun -np 1 learner.py : -np 2 actor.py."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

from support import hvdrun

SOURCE = pathlib.Path(__file__).parent / "mpi_program.c"
SHARED = """
import sys
import numpy as np
import hvd.numpy as hvd
hvd.init()
learners, actors = hvd.program_sets()
mine = learners if learners.included() else actors
world = hvd.allreduce(np.ones(4), op=hvd.Sum)[0]
own = hvd.allreduce(np.full(4, float(hvd.rank())), op=hvd.Sum, process_set=mine)[0]
again = [s.process_set_id for s in hvd.program_sets()] == [learners.process_set_id, actors.process_set_id]
"""
LEARNER = SHARED + "print('learner', hvd.rank(), learners.ranks, actors.ranks, world, own, again, sys.argv[1:])"
ACTOR = SHARED + "print('actor', hvd.rank(), mine.rank(), mine.size(), world, own, again, sys.argv[1:])"


@pytest.fixture
def scripts(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with both."""
    (tmp_path / "learner.py").write_text(LEARNER)
    (tmp_path / "actor.py").write_text(ACTOR)
    return tmp_path


def test_one_world_and_a_set_for_each(scripts: pathlib.Path) -> None:
    """Each program has its own arguments; sums over the world and over a program are right."""
    done = hvdrun.run("-np", "1", "learner.py", "--lr", "1", ":", "-np", "2", "actor.py", ":", "x", cwd=scripts)
    assert done.returncode == 0, done.stderr
    lines = sorted(re.sub(r"^\[\d+ localhost\] ", "", line) for line in done.stdout.splitlines())
    assert lines == [
        "actor 1 0 2 3.0 3.0 True [':', 'x']",
        "actor 2 1 2 3.0 3.0 True [':', 'x']",
        "learner 0 [0] [1, 2] 3.0 0.0 True ['--lr', '1']",
    ]
    assert 'hvdrun: the ":" goes to actor.py as an argument' in done.stderr


def test_the_example_finds_the_mean() -> None:
    example = str(hvdrun.ROOT / "examples/learner_actors.py")
    done = hvdrun.run("-np", "1", *hvdrun.python_args(), example, "learner", ":", "-np", "2", example, "actor")
    assert done.returncode == 0, done.stderr
    found = re.search(r"1 learner, 2 actors: the mean is about ([\d.]+)", done.stdout)
    assert found and 2.9 < float(found[1]) < 3.1, done.stdout


def test_one_program_has_all_ranks() -> None:
    """program_sets() succeeds there, and makes no set."""
    code = "import hvd.numpy as hvd; hvd.init(); print(hvd.program_sets() == [hvd.global_process_set])"
    done = hvdrun.run("-np", "2", "--", sys.executable, "-c", code)
    assert done.stdout.count("True") == 2, done.stderr


def test_three_programs_and_commands() -> None:
    """Any payload but a pickle; ranks follow the order of the programs."""
    more = [":", "-np", "1", "-m", "this", ":", "-n", "2", "--", "sh", "-c", "echo b $HVD_RANK $HVD_PROGRAMS"]
    done = hvdrun.run("-np", "1", "--", "sh", "-c", "echo a $HVD_RANK", *more)
    assert done.returncode == 0, done.stderr
    ours = sorted(line for line in done.stdout.splitlines() if not line.startswith("[1 "))
    assert ours == ["[0 localhost] a 0", "[2 localhost] b 2 1,1,2", "[3 localhost] b 3 1,1,2"]
    assert "[1 localhost] Beautiful is better than ugly." in done.stdout


def test_one_verdict(scripts: pathlib.Path) -> None:
    """If one program fails, the others end."""
    done = hvdrun.run("-np", "1", "--", "sleep", "100", ":", "-np", "2", "--", "sh", "-c", "exit $((HVD_RANK + 3))")
    assert done.returncode in (4, 5)
    assert re.match(r"hvdrun: rank [12] on localhost ended with exit code [45]\n", done.stderr), done.stderr


def test_dry_run(scripts: pathlib.Path) -> None:
    """Shows the ranks of each program."""
    args = ["-np", "1", "learner.py", ":", "-np", "2", "--", "echo", "a b"]
    text = hvdrun.run("--dry-run", *args, cwd=scripts).stdout
    assert re.search(r"^3 ranks on 1 host", text)
    assert re.search(r"^rank 0 runs  \(script\)\n  \S+ learner.py\nranks 1-2 run  \(command\)\n  echo 'a b'\n", text, re.M)
    programs = json.loads(hvdrun.run("--dry-run", "--json", *args, cwd=scripts).stdout)["programs"]
    assert [(p["name"], p["first_rank"], p["ranks"]) for p in programs] == [("learner.py", 0, 1), ("echo", 1, 2)]


@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
def test_mpi_knows_the_program(mpirun: str, tmp_path: pathlib.Path) -> None:
    """MPI_APPNUM, by which coupled MPI programs split the world."""
    program = str(tmp_path / "program")
    subprocess.run([pathlib.Path(mpirun).parent / "mpicc", SOURCE, "-o", program], check=True, timeout=120)
    done = hvdrun.run("--mpirun", mpirun, "-np", "1", "--", program, "program", ":", "-np", "2", "--", program, "program")
    assert done.returncode == 0, done.stderr
    told = sorted(re.findall(r"rank (\d) is of program (\d)", done.stdout))
    assert told == [("0", "0"), ("1", "1"), ("2", "1")]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["learner.py", ":", "-np", "2", "actor.py"], ":: stands between two programs, but the first has no -np"),
        (["-np", "1", "learner.py", ":", "-np", "2"], "nothing to run"),
        (["-np", "1", "learner.py", ":", "-np", "x", "actor.py"], "-np"),
        (["-np", "1", "learner.py", ":", "-np", "2", "--verbose", "actor.py"], "--verbose: cannot be an option of one of"),
        (["-np", "1", "learner.py", ":", "-np", "-1", "actor.py"], "-np: each program needs at least 1 rank, not -1"),
        (
            ["-np", "1", "learner.py", ":", "-np", "0", "actor.py", ":", "-np", "2", "actor.py"],
            "-np: each program needs at least",
        ),
        (["-np", "1", "learner.py", ":", "-np", "2", "job.pkl"], "job.pkl: a .pkl cannot be one of several programs"),
        (["-np", "1", "learner.py", ":", "-np", "1", "missing.py"], "missing.py: "),
        (
            ["--min-np", "1", "-np", "1", "learner.py", ":", "-np", "1", "actor.py"],
            "several programs cannot be one elastic job",
        ),
        (["-np", "1", "-H", "localhost:2", "learner.py", ":", "-np", "2", "actor.py"], "3"),
    ],
)
def test_errors(args: list[str], problem: str, scripts: pathlib.Path) -> None:
    """Reported before the start."""
    done = hvdrun.run(*args, cwd=scripts)
    assert done.returncode == 2, done.stderr
    assert problem in done.stderr
    assert "internal" not in done.stderr
