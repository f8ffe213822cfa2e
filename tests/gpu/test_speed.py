"""The program that makes the table of speeds, over the fakes, so that a GPU is needed only for the figures."""

from __future__ import annotations

import json
import pathlib
import shutil
import socket
import sys
from typing import Any

import pytest

from python.harness import has, python, run_ranks
from python.test_torch_gpu import FAKE

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = {
    "pack": {"tensors", "bytes", "ms", "copies_ms", "of_copy_bandwidth"},
    "allreduce": {"ms", "bare_nccl_ms", "copies_ms", "ratio"},
    "cpu": {"tensors", "hooks_all_us", "grouped_engine_us", "single_driver_calls_per_tensor", "hooks_paced_groups"},
    "pieces": {"is_neg_us", "new_grad_us"},
    "group": {"queued_us", "cpu_us"},
    "resnet50": {"parameters", "alone_ms", "hvd_least_ms", "ddp_hook_cpu_ms", "hvd_groups8_synced_ms"},
    "transformer": {"parameters", "alone_ms", "hvd_ms", "ddp_ms"},
}


@pytest.fixture(scope="module")
def speed_table() -> Any:
    sys.path.insert(0, str(HERE))
    import speed_table

    return speed_table


def test_every_row_comes_out(speed_table: Any) -> None:
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed")
    if not has("torch"):
        pytest.skip(f"{python()} lacks torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rank, fakes = HERE / "speed_on_fakes.py", {**FAKE, "FAKE_CUDA_DELAY_US": "0"}
    done = run_ranks(rank, "--small", "--rounds", "1", "--port", str(port), *FIGURES, ranks=2, timeout=100, **fakes)
    assert done.returncode == 0, done.stdout[-4000:]
    rows = {row["row"]: row for row in speed_table.rows_in(done.stdout.splitlines())}
    assert list(rows) == list(FIGURES), done.stdout[-4000:]
    for name, row in rows.items():
        assert {"gpu", "ranks", "nccl", "seconds", *FIGURES[name]} <= set(row)
        assert "failed" not in row, row["failed"]
        assert row["gpu"] == "Fake GPU" and row["ranks"] == 2 and row["nccl"] == 23007
        assert all(row[figure] > 0 for figure in FIGURES[name])


def test_the_table_finds_rows_behind_a_ranks_tag(speed_table: Any) -> None:
    pack = {"row": "pack", "ranks": 1, "of_copy_bandwidth": 0.9}
    shared = {"row": "group", "ranks": 1, "group_end_us": 30.0}
    bench = {"ranks": 1, "rows": [{"row": "gpu", "title": "161 grouped, all", "hvd": {"median": 140.0}}]}
    lines = [f"[0]: {json.dumps(pack)}", json.dumps(shared), f"[0]: FIGURES {json.dumps(bench)}", "[1]: {cut", "hvdrun: done"]
    table = speed_table.table(lines)
    assert "share of the copy bandwidth | 1 | 0.9 | >= 0.8 | yes |" in table
    assert "| 1 | 30 | <= 25 | for 2 only |" in table
    assert "grouped, us | 1 | 140 | <= 150 | yes |" in table
    assert "not measured: " in table and "resnet50 hvd_of_ddp" in table


def test_the_table_compares_models(speed_table: Any) -> None:
    row = {"row": "resnet50", "ranks": 1, "alone_ms": 19.2, "hvd_ms": 20.4, "hvd_of_ddp": 0.46, "failed": {"ddp": "it broke"}}
    table = speed_table.table([json.dumps(row)])
    assert "| alone | 19.2 |" in table and "| hvd | 20.4 |" in table
    assert "resnet50: ddp: it broke" in table
