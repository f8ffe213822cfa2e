"""A rank ends while others wait for it: all of them soon get an error, under plain mpirun and under hvdrun."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from python.harness import environment, has, mpirun, python
from support.forms import few
from support.hvdrun import program

PEER = pathlib.Path(__file__).resolve().parent / "peer.py"
SOON = 5.0  # limit for an error, in seconds
SLACK = 20.0  # added for a busy machine, so that a failure is a hang, not a delay
WAYS = [("kill", "idle"), ("exit0", "idle"), ("exit1", "idle"), ("shutdown", "idle"), ("kill", "large"), ("shutdown", "large")]
WAYS += [("exit0", "polled")]


def survivors(command: list[str], ranks: int, per_node: int) -> dict[int, tuple[float, str]]:
    """The messages of the remaining ranks: seconds until the error, and its text."""
    if not has("numpy"):
        pytest.skip(f"{python()} lacks numpy")
    process = subprocess.Popen(
        command,
        env=environment(HVD_RANKS_PER_NODE=str(per_node)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said: dict[int, tuple[float, str]] = {}
    shown: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:  # until the end of the job; peer.py limits itself
            shown.append(line)
            if found := re.search(r"SURVIVOR (\d+) ([\d.]+) (.*)", line):
                said[int(found.group(1))] = float(found.group(2)), found.group(3)
            if len(said) == ranks - 1:
                break
    finally:
        process.terminate()  # `timeout` forwards it
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # mpirun too, not only `timeout`
    assert len(said) == ranks - 1, f"only ranks {sorted(said)} of {ranks - 1} got an error:\n{''.join(shown)[-3000:]}"
    return said


@pytest.mark.timeout(100)
@pytest.mark.parametrize(("how", "when"), WAYS)
@pytest.mark.parametrize(("ranks", "per_node"), few([(4, 2), (3, 0)]), ids=["two nodes", "one node"])
def test_under_plain_mpirun(how: str, when: str, ranks: int, per_node: int, tmp_path: pathlib.Path) -> None:
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed")
    keep = ["--enable-recovery"]  # otherwise mpirun ends all ranks as soon as one has failed
    keep += ["--mca", "btl_vader_backing_directory", str(tmp_path)]  # a killed rank leaves Open MPI's segment behind
    command = ["timeout", "-k", "5", "80", *mpirun(ranks), *keep, python(), str(PEER), how, when]
    heard = survivors(command, ranks, per_node)
    for rank, (seconds, text) in heard.items():
        assert seconds < SOON + SLACK, f"rank {rank} waited {seconds} s"
        assert "rank" in text or "shut down" in text, text


@pytest.mark.timeout(100)
@pytest.mark.parametrize("how", ["exit0", "shutdown"])
def test_under_hvdrun(how: str) -> None:
    """The cases in which hvdrun does not stop all ranks."""
    command = ["timeout", "-k", "5", "80", program(), "-np", "3", "--python", python(), str(PEER), how, "idle"]
    for rank, (seconds, text) in survivors(command, 3, 0).items():
        assert seconds < SOON + SLACK, f"rank {rank} waited {seconds} s"
        assert "rank" in text, text
