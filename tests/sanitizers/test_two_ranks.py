"""Two ranks of the build that HVD_BUILD_DIR names, which scripts/test makes with sanitizers: no finding, right results."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("HVD_BUILD_DIR", "build"))
FINDINGS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:")


def run(*argv: str) -> str:
    """Runs a job from an empty environment but for what it needs; its output, without a finding in it."""
    env = {
        **os.environ,
        "PYTHONPATH": str(BUILD / "src/python"),
        "HVD_RANK_PROGRAM": str(BUILD / "src/rank/hvdrank"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=170, env=env
    )
    assert done.returncode == 0 and not any(word in done.stdout for word in FINDINGS), done.stdout[-6000:]
    return done.stdout


@pytest.mark.timeout(180)
@pytest.mark.parametrize("ranks", [2, 3])
def test_python_under_hvdrun(ranks: int, tmp_path: pathlib.Path) -> None:
    hvdrun = [str(BUILD / "launcher/hvdrun"), "-np", str(ranks), "--start-timeout", "120"]
    timeline = ["--timeline-filename", str(tmp_path / "timeline.json")]
    output = run(*hvdrun, *timeline, "--python", sys.executable, str(HERE / "two_ranks.py"))
    assert output.count("all right") == ranks


@pytest.mark.timeout(180)
def test_a_failing_rank_under_hvdrun() -> None:
    argv = [str(BUILD / "launcher/hvdrun"), "-np", "2", "--", "sh", "-c", "test $HVD_RANK = 0 || exit 7; exec sleep 60"]
    env = {**os.environ, "HVD_RANK_PROGRAM": str(BUILD / "src/rank/hvdrank")}
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, env=env
    )
    assert done.returncode == 7 and not any(word in done.stdout for word in FINDINGS), done.stdout[-6000:]
