"""The verdict names the kernel's out-of-memory killer for a rank that it ended."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/rank"))
from rank_bench import Driver, manifest  # noqa: E402

V1 = Path("/sys/fs/cgroup/memory")
EAT = "hold = [bytearray(b'x' * (1 << 20)) for _ in range(2000)]\nprint('not killed')\n"


@pytest.fixture
def group():
    """A memory cgroup of 40 MiB."""
    if not (V1 / "memory.oom_control").exists() or not os.access(V1, os.W_OK):
        pytest.skip("no memory cgroup (v1) that this user may make groups in")
    folder = V1 / f"hvd-test-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(40 << 20))
    if (folder / "memory.memsw.limit_in_bytes").exists():
        (folder / "memory.memsw.limit_in_bytes").write_text(str(40 << 20))
    yield folder
    for _ in range(100):
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.05)


@contextmanager
def member_of(group: Path) -> Iterator[None]:
    """Processes started here are in the group, as a job is in its container's."""
    line = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
    mine = V1 / line.split(":", 2)[2].lstrip("/")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (mine / "cgroup.procs").write_text(str(os.getpid()))


@pytest.mark.parametrize("mode", ["embedded", "exec"])
def test_out_of_memory_is_named(group: Path, tmp_path: Path, mode: str) -> None:
    (tmp_path / "eat.py").write_text(EAT)
    env = {"HVD_RANK_EXEC": "1"} if mode == "exec" else {}
    m = manifest(kind="script", name=str(tmp_path / "eat.py"), python=sys.executable, env=env)
    with member_of(group):
        d = Driver(tmp_path / "d", [m])
    d.finish()
    death = d.death()
    assert (death["cause"], death["code"]) == ("oom", 9), death
    assert "out-of-memory killer" in death["text"]
    assert "MiB" in death["text"]
    assert death["hint"]


def test_a_worker_that_was_killed_for_memory_is_told_of(group: Path, tmp_path: Path) -> None:
    """The rank itself ends with another error, as with torch's data loader."""
    (tmp_path / "work.py").write_text(
        f"import subprocess, sys\nif subprocess.run([sys.executable, '-c', {EAT!r}]).returncode: raise RuntimeError('lost')\n"
    )
    m = manifest(kind="script", name=str(tmp_path / "work.py"), python=sys.executable)
    with member_of(group):
        d = Driver(tmp_path / "d", [m])
    d.finish()
    death = d.death()
    assert (death["cause"], death["code"]) == ("exited", 1), death
    assert "out-of-memory killer ended 1 process of its cgroup, which may hold 40 MiB" in death["hint"]


def test_a_plain_sigkill_is_not_called_out_of_memory(tmp_path: Path) -> None:
    d = Driver(tmp_path / "d", [manifest(name="sh", args=["-c", "kill -9 $$"])]).finish()
    assert (d.death()["cause"], d.death()["code"]) == ("signalled", 9)
