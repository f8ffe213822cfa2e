"""The last operations of ranks: kept when a job hangs, shown while it runs, with the first difference between ranks."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import time

from support import hvdrun

DIFFERS = """
import time
import numpy as np
import hvd.numpy as hvd
hvd.init()
for i in range(5):
    hvd.allreduce(np.ones(100, np.float32), name="grad/a")
name = "loss" if hvd.rank() == 1 else "grad/b"
hvd.allreduce(np.ones(100, np.float32), name=name)
"""


def timeline_tool() -> str:
    return str(pathlib.Path(hvdrun.program()).parents[1] / "tools/hvd-timeline/hvd-timeline")


def test_ranks_that_submit_different_operations(tmp_path: pathlib.Path) -> None:
    env = hvdrun.environment(XDG_STATE_HOME=str(tmp_path), TMPDIR=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path))
    job = subprocess.Popen(
        [hvdrun.program(), "-np", "3", sys.executable, "-c", DIFFERS],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        words = ""
        while "hvd-timeline desync" not in words:
            line = hvdrun.next_line(job.stderr)
            assert line, words
            words += line
        assert "the ranks differ at operation 5: allreduce allreduce.grad/b (400 B float32) on ranks 0,2" in words, words
        assert "rank 1 has submitted allreduce allreduce.loss (400 B float32) instead" in words
        shown = subprocess.run(
            [hvdrun.program(), "stacks", str(job.pid), "--ops"], env=env, capture_output=True, text=True, timeout=30
        )
        assert shown.returncode == 0, shown.stderr
        assert re.search(r"rank 0 on \S+: 6 operations submitted, 1 under way", shown.stdout), shown.stdout
        assert re.search(r"waits for other ranks for \d+\.\d+ s: #5 allreduce allreduce.loss", shown.stdout)
        assert "the ranks differ at operation 5" in shown.stdout
        kept = list((tmp_path / "hvdrun/operations").glob("*.ops"))
        assert len(kept) == 1 and str(kept[0]) in words
        told = subprocess.run([timeline_tool(), "desync", str(kept[0])], capture_output=True, text=True, timeout=30)
        assert told.returncode == 1 and told.stdout.startswith("the ranks differ at operation 5"), told
    finally:
        job.terminate()
        job.wait(30)


def test_a_killed_ranks_operations_are_kept(tmp_path: pathlib.Path) -> None:
    env = hvdrun.environment(XDG_STATE_HOME=str(tmp_path))
    script = DIFFERS.split("name =")[0] + "import os\nif hvd.rank() == 1: os.kill(os.getpid(), 9)\ntime.sleep(60)\n"
    done = subprocess.run(
        [hvdrun.program(), "--verbose", "-np", "2", sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 128 + 9
    kept = list((tmp_path / "hvdrun/operations").glob("*.ops"))
    assert len(kept) == 1 and str(kept[0]) in done.stderr
    assert kept[0].read_text().count("grad/a") == 10


def test_only_the_last_files_stay(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "hvdrun/operations"
    folder.mkdir(parents=True)
    for i in range(30):
        (folder / f"old{i}.ops").write_text("")
        os.utime(folder / f"old{i}.ops", (time.time() - 1000 + i,) * 2)
    script = "import os, numpy, hvd.numpy as hvd\nhvd.init()\nhvd.allreduce(numpy.ones(1), name='a')\nos.abort()\n"
    env = hvdrun.environment(XDG_STATE_HOME=str(tmp_path))
    done = subprocess.run(
        [hvdrun.program(), "-np", "1", sys.executable, "-c", script], env=env, capture_output=True, timeout=60
    )
    assert done.returncode == 128 + 6
    names = sorted(path.name for path in folder.glob("*.ops"))
    assert len(names) == 20 and "old29.ops" in names and "old10.ops" not in names
