"""The program that makes the table of speeds, over the fakes: on a GPU only the figures are to be read."""

from __future__ import annotations

import json
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest

from python.harness import environment, has, python, run_ranks
from python.test_torch_gpu import FAKE

RANK = pathlib.Path(__file__).resolve().parent / "speed_on_fakes.py"
FIGURES = {
    "pack": {"tensors", "bytes", "ms", "copies_ms", "of_copy_bandwidth"},
    "allreduce": {"ms", "bare_nccl_ms", "copies_ms", "ratio"},
    "cpu": {"tensors", "us", "grouped_us"},
    "ddp": {"ms", "ddp_ms", "ratio"},
}


def test_every_row_comes_out() -> None:
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed")
    if not has("torch"):
        pytest.skip(f"{python()} lacks torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = run_ranks(RANK, "--small", "--rounds", "1", "--port", str(port), ranks=2, timeout=100, **FAKE)
    assert done.returncode == 0, done.stdout[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["row"] for row in rows] == list(FIGURES)
    for row in rows:
        assert {"row", "gpu", "ranks", "nccl", *FIGURES[row["row"]]} == set(row)
        assert row["gpu"] == "Fake GPU" and row["ranks"] == 2 and row["nccl"] == 23007
        assert all(row[name] > 0 for name in FIGURES[row["row"]])
    table = speed_table("\n".join(line for line in done.stdout.splitlines() if '"ddp"' not in line))
    assert table.count("\n| ") == len(FIGURES) - 1 and "| for 1 only |" in table, table
    assert table.endswith("\nnot measured: ddp\n")


def speed_table(printed: str) -> str:
    """What speed.py --table says of such output."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(printed)
        file.flush()
        command = [python(), str(RANK.with_name("speed.py")), "--table", file.name]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout
