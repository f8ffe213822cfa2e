"""HOROVOD_TIMELINE on a file system that only appends."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support import hvdrun

from . import session as s

REASON = s.why_not()


def shim(folder: pathlib.Path) -> dict[str, str]:
    """Variables that make folder/dbfs a folder without seeks."""
    (folder / "dbfs").mkdir()
    library = folder / "no_seek.so"
    source = str(s.HERE / "no_seek.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"], check=True, timeout=60)
    return {"LD_PRELOAD": str(library), "NO_SEEK_FOLDER": str(folder / "dbfs"), "NO_SEEK_LOG": str(folder / "log")}


def check(path: pathlib.Path, log: pathlib.Path) -> None:
    """All ranks' events are in one file, which was only appended to, and synced to disk before it was closed."""
    events = json.loads(path.read_text())
    names = {event.get("name") for event in events}
    assert any("ALLREDUCE" in str(name) for name in names), names
    assert len({event["pid"] for event in events if event.get("ph") in "BEX"}) >= 1
    assert set(log.read_text().split("\n")) - {""} == {"fsync"}, log.read_text()


@contextlib.contextmanager
def append_only(folder: pathlib.Path) -> Iterator[None]:
    """folder/dbfs is a FUSE file system that only appends; folder/log has its requests.  Otherwise the test is skipped."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("mounting a FUSE file system needs root and /dev/fuse")
    (folder / "dbfs").mkdir()
    server = subprocess.Popen(
        [sys.executable, str(s.HERE / "append_only_fs.py"), str(folder / "dbfs"), str(folder / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None and server.stderr is not None
    if server.stdout.readline() != "mounted\n":
        pytest.skip(server.stderr.read().strip())
    try:
        yield
    finally:
        server.stdin.close()
        server.wait(20.0)


def test_nothing_but_appending(tmp_path: pathlib.Path) -> None:
    """hvdrun's file, with lseek, pwrite and ftruncate refused."""
    run_traced(tmp_path, shim(tmp_path))
    check(tmp_path / "dbfs/timeline.json", tmp_path / "log")


def test_on_a_file_system_that_only_appends(tmp_path: pathlib.Path) -> None:
    """A real one, in the kernel, like /dbfs: every write is at the end."""
    with append_only(tmp_path):
        run_traced(tmp_path, {})
        check(tmp_path / "dbfs/timeline.json", tmp_path / "log")


def run_traced(tmp_path: pathlib.Path, variables: dict[str, str]) -> None:
    """Two ranks, their timeline in tmp_path/dbfs."""
    job = tmp_path / "job.py"
    job.write_text(
        "import numpy, hvd.numpy as h; h.init()\nfor i in range(20): h.allreduce(numpy.ones(8), name='x')\nh.shutdown()\n"
    )
    build = pathlib.Path(hvdrun.program()).parents[1]
    path = tmp_path / "dbfs/timeline.json"
    done = hvdrun.run(
        "-np", "2", *hvdrun.python_args(), str(job),
        env=hvdrun.environment(**variables, HOROVOD_TIMELINE=str(path), PYTHONPATH=str(build / "src/python")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_one_file_from_a_spark_job(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """Set in the notebook, as on Databricks."""
    assert local.good("with_timeline", path=str(tmp_path / "timeline.json")) == 2
    events = json.loads((tmp_path / "timeline.json").read_text())
    assert any("ALLREDUCE" in str(event.get("name")) for event in events)
