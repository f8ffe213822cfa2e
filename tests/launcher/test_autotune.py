"""--autotune in a whole job: its log, its file, and unchanged sums."""

from __future__ import annotations

import os
import pathlib

import pytest

from support import hvdrun

PROGRAM = """
import os, sys, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
values = [np.linspace(1, 2 + i, 50_000 * i + 7, dtype=np.float32) / (hvd.rank() + 3) for i in range(4)]
first, go_on, end = None, np.ones(1, np.float32), time.monotonic() + float(sys.argv[2])
while go_on[0] > 0:
    handles = [hvd.allreduce_async(v, name=f"t{i}", op=hvd.Sum) for i, v in enumerate(values)]
    sums = [hvd.synchronize(h).tobytes() for h in handles]
    assert first is None or sums == first, "the bits of a sum have changed"
    first = sums
    if hvd.rank() == 0:
        done = len(open(sys.argv[1]).readlines()) > 3 if os.path.exists(sys.argv[1]) else False
        go_on[0] = not done and time.monotonic() < end
    hvd.allreduce_(go_on, name="go on", op=hvd.Min)
assert hvd.rank() != 0 or time.monotonic() < end, "nothing was tried"
"""


@pytest.fixture
def script(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def test_settings_are_tried_and_logged(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log.csv"
    flags = ["--autotune", "--autotune-log-file", str(log), "--autotune-steps-per-sample", "2"]
    done = hvdrun.run("-np", "2", *flags, "python3", str(script), str(log), "60")
    assert done.returncode == 0, done.stderr
    rows = [line.split(",") for line in log.read_text().splitlines()]
    horovods = ["hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce", "cache_enabled", "cycle_time_ms"]
    assert rows[0][:7] == [*horovods, "tensor_fusion_threshold", "score"]
    assert all(len(row) == len(rows[0]) for row in rows)
    assert all(float(row[6]) > 0 for row in rows[1:])


def test_a_file_of_settings_is_used(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "tuned"
    line = "hosts=1 ranks=2 transport=auto fusion_bytes=1048576 hold_ns=0 slice_bytes=0 latency_ns=15000 gain=0.100\n"
    file.write_text(line)
    code = "import hvd.numpy as hvd, numpy; hvd.init(); print(hvd.allreduce(numpy.ones(3), op=hvd.Sum))"
    flags = ["--autotune-from", str(file), "--log-level", "info"]
    done = hvdrun.run("-np", "2", *flags, "python3", "-c", code)
    assert done.returncode == 0 and "autotune: from " in done.stderr and "fusion 1 MiB, hold 0 ms" in done.stderr, done.stderr
    assert file.read_text() == line
    file.write_text("hosts=1 ranks=2 transport=auto hold_ns=9000000000000\n")
    done = hvdrun.run("-np", "2", *flags, "python3", "-c", code)
    assert done.returncode == 0 and f"{file}:1: these are no settings of --autotune" in done.stderr, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_file_of_somebody_else_is_neither_read_nor_replaced(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "tuned"
    file.write_text("hosts=1 ranks=2 transport=auto fusion_bytes=1048576\n")
    os.chown(file, 54321, 54321)
    code = "import hvd.numpy as hvd; hvd.init()"
    done = hvdrun.run("-np", "2", "--autotune-from", str(file), "python3", "-c", code)
    assert done.returncode == 0 and "54321" in done.stderr, done.stderr
    assert file.stat().st_uid == 54321


def test_the_option_that_does_nothing_says_so() -> None:
    done = hvdrun.run("-np", "1", "--autotune-gaussian-process-noise", "0.5", "--dry-run", "true")
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1, done.stderr
