"""The program that measures a step's exchange on the host: every row appears, with the right counts."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from python.harness import environment, has, python
from python.test_torch_gpu import FAKES

PROGRAM = Path(__file__).resolve().parent / "costs_on_fakes.py"


def test_every_row_comes_out() -> None:
    if not has("torch"):
        pytest.skip(f"{python()} lacks torch")
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed")
    if not (FAKES / "libfakenothing.so").exists():
        pytest.skip("libfakenothing.so is not built")
    wanted = ["hooks", "grouped", "single", "single-paced"]
    command = [python(), str(PROGRAM), "--build", str(FAKES.parents[2]), "--rounds", "2", "--json", *wanted]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["row"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == wanted
    for row in rows.values():
        assert row["groups"] >= 1 and row["driver_calls"] > 0 and row["all_us"] >= row["engine_us"] >= 0
        assert sum(n for name, n in row["kinds"].items() if name == "ncclGroupEnd") >= 1
    assert rows["grouped"]["groups"] == 1  # 161 tensors that run together
