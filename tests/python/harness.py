"""Runs files of checks inside ranks, and makes each check a test of its own.

A file in tests/python/ranks has functions check_*(), which all ranks call in the order of the file, in one launch, because
importing torch on two ranks costs seconds.  tests/python/test_*.py names the file, and pytest shows the checks.

HVD_BUILD_DIR: the build folder (default build/).  HVD_TEST_PYTHON: the ranks' interpreter, with torch or the other modules of
a file (default this one).  HVD_TEST_TENSORFLOW: an interpreter with TensorFlow and JAX (default HVD_TEST_PYTHON).
HVD_TEST_JAX: one with JAX (default HVD_TEST_TENSORFLOW), HVD_TEST_MXNET: one with MXNet (default HVD_TEST_PYTHON).
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Callable

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MARK = "#check "


def python() -> str:
    """The ranks' interpreter."""
    return os.environ.get("HVD_TEST_PYTHON", sys.executable)


def tensorflow() -> str:
    """The interpreter of ranks that use TensorFlow."""
    named = os.environ.get("HVD_TEST_TENSORFLOW", "")
    return named if os.access(named, os.X_OK) else python()


def jax_interpreter() -> str:
    """The interpreter of ranks that use JAX."""
    named = os.environ.get("HVD_TEST_JAX", "")
    return named if os.access(named, os.X_OK) else tensorflow()


def mxnet_interpreter() -> str:
    """The interpreter of ranks that use MXNet."""
    named = os.environ.get("HVD_TEST_MXNET", "")
    return named if os.access(named, os.X_OK) else python()


def environment(**extra: str) -> dict[str, str]:
    """The environment in which `import hvd` finds the package of this tree."""
    build = Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build")).absolute()
    package = build / "src" / "python"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "HOROVOD_"))}
    if (package / "hvd" / "_native.abi3.so").exists():
        env["PYTHONPATH"] = str(package)
        env.setdefault("HVD_RUN_PROGRAM", str(build / "launcher" / "hvdrun"))
        env.setdefault("HVD_RANK_PROGRAM", str(build / "src" / "rank" / "hvdrank"))
    env["PYTHONUNBUFFERED"] = "1"
    env["OMP_NUM_THREADS"] = "1"
    return {**env, **extra}


@cache
def has(*modules: str, interpreter: str | None = None) -> bool:
    """Returns whether the ranks' interpreter has these modules."""
    code = f"import sys; from importlib.util import find_spec as f; sys.exit(not all(map(f, {modules!r})))"
    return subprocess.run([interpreter or python(), "-c", code], env=environment(), timeout=60).returncode == 0


def mpirun(ranks: int) -> list[str]:
    """The start of a command for that many ranks on this host."""
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]


def run_ranks(
    file: Path, *args: str, ranks: int = 2, timeout: float = 180, interpreter: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs a Python file on ranks under plain mpirun; the time limit ends its whole process group."""
    command = [*mpirun(ranks), interpreter or python(), str(file), *args]
    process = subprocess.Popen(
        command,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            out, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        out += f"\n*** not finished after {timeout} s ***"
    return subprocess.CompletedProcess(command, process.returncode, out, "")


@dataclass
class Outcome:
    """The results of a check on the ranks that have ended it, and the output of its launch."""

    output: str
    ranks: list[list[Any]] = field(default_factory=list)  # [rank, traceback or None, reason for a skip or None]

    def is_good(self, ranks: int) -> bool:
        return len(self.ranks) == ranks and not any(text for _, text, _ in self.ranks)


@cache
def _outcomes(
    files: tuple[str, ...], names: tuple[str, ...], ranks: int, interpreter: str, env: tuple[tuple[str, str], ...], limit: float
) -> dict[str, Outcome]:
    """The outcome of each started check.  A failing or hanging check ends the launch; one more launch runs the remaining
    checks.
    """
    found: dict[str, Outcome] = {}
    left, after = list(names), list[str]()
    for _ in range(2):
        done = run_ranks(HERE / "in_ranks.py", *files, *after, ranks=ranks, interpreter=interpreter, timeout=limit, **dict(env))
        new = {name: Outcome(done.stdout) for name in left}
        for line in done.stdout.splitlines():
            if MARK in line:
                rank, name, *outcome = json.loads(line[line.index(MARK) + len(MARK) :])
                new[name].ranks.append([rank, *outcome])
        well = sum(1 for _ in takewhile(lambda outcome: outcome.is_good(ranks), new.values()))
        begun = left[: well + 1]  # the last one ended the launch, or all passed
        found |= {name: new[name] for name in begun}
        left = left[len(begun) :]
        after = ["--after", begun[-1]]
        if not left:
            break
    return found


def checks_of(
    *files: str, ranks: int = 2, needs: tuple[str, ...] = (), interpreter: str | None = None, **env: str
) -> Callable[..., None]:
    """A test for each check_* function of these files in tests/python/ranks: all files run in one launch, in order."""
    paths = tuple(str(HERE / "ranks" / file) for file in files)
    program = interpreter or python()
    limit = 90.0 + 60 * len(files)
    names = [
        f"{Path(path).stem}.{node.name}"
        for path in paths
        for node in ast.parse(Path(path).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    ]

    @pytest.mark.timeout(2 * limit + 30)  # the first test makes the launches
    @pytest.mark.parametrize("check", names)
    def test(check: str) -> None:
        if not shutil.which("mpirun"):
            pytest.skip("mpirun is not installed")
        if needs and not has(*needs, interpreter=program):
            pytest.skip(f"{program} lacks one of {', '.join(needs)}")
        found = _outcomes(paths, tuple(names), ranks, program, tuple(sorted(env.items())), limit)
        if check not in found:
            pytest.fail("not run: others before it hung or failed", pytrace=False)
        said = sorted(found[check].ranks, key=lambda outcome: outcome[0])
        for rank, text, _ in said:
            assert text is None, f"rank {rank}:\n{text}"
        assert [rank for rank, _, _ in said] == list(range(ranks)), f"not all ranks finished it:\n{found[check].output[-4000:]}"
        why = {skipped for _, _, skipped in said}
        if why != {None}:
            assert None not in why, f"skipped on some ranks only: {said}"
            pytest.skip("; ".join(sorted(map(str, why))))

    return test
