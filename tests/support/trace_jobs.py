"""Jobs and Perfetto queries for several tests of timelines."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any

from support.timelines import FAKE_RANK, Job, environment

IMPORT_ERRORS = "select name, value from stats where severity = 'error' and value > 0"
SLICES = "select name, count(*) from slice group by name"


def counts(rows: list[list[Any]]) -> dict[str, int]:
    return {str(name): int(count) for name, count in rows}


def victim(job: Job, kind: str) -> int:
    """The process to kill: hvdrun, the host daemon, rank 1 or its guard."""
    if kind == "hvdrun":
        return job.process.pid
    processes = job.processes()
    names = {pid: name for pid, _, name in processes}
    parents = {pid: parent for pid, parent, _ in processes}
    if kind == "daemon":
        return next(pid for pid, parent, _ in processes if parent == job.process.pid)
    rank = [pid for pid, name in names.items() if name == "fake_rank"][-1]
    return rank if kind == "rank" else parents[rank]


def ranks_alone(folder: pathlib.Path, ending: str) -> list[pathlib.Path]:
    """The files that two ranks write without hvdrun."""
    for rank in ("0", "1"):
        env = environment(HOROVOD_TIMELINE=str(folder / f"t.{ending}"), HVD_RANK=rank, HVD_SIZE="2")
        subprocess.run([str(FAKE_RANK), "10", "20"], env=env, check=True, timeout=30, stdout=subprocess.DEVNULL)
    return [folder / f"t.{ending}", folder / f"t.rank1.{ending}"]
