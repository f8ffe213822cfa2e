"""Jobs that write timelines, and the timelines' content."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build")).resolve()
FAKE_RANK = BUILD / "tests/trace/fake_rank"


def environment(**changes: str) -> dict[str, str]:
    """Returns this process's environment for a test: without variables of jobs and launchers, updated by `changes`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HVD_", "HOROVOD_", "OMPI_", "PMIX_"))}
    package = BUILD / "src/python"
    ours = {
        "HVD_RANK_PROGRAM": str(BUILD / "src/rank/hvdrank"),
        "PYTHONPATH": f"{package}{os.pathsep}{kept.get('PYTHONPATH', '')}".rstrip(os.pathsep),
        "OMP_NUM_THREADS": "1",
    }
    return {**kept, **ours, **changes}


class Job:
    """hvdrun with two ranks, in the background."""

    def __init__(self, timeline: pathlib.Path, command: list[str], flags: list[str], env: dict[str, str], log: pathlib.Path):
        self.timeline = timeline
        self.log = log
        argv = [str(BUILD / "launcher/hvdrun"), "-np", "2", "--timeline-filename", str(timeline), *flags, "--", *command]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(**env)
            )

    def wait(self, limit_seconds: float = 60) -> int:
        return self.process.wait(limit_seconds)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def processes(self) -> list[tuple[int, int, str]]:
        """(pid, parent, name) of the processes that hvdrun has started, parents first."""
        parents: dict[int, tuple[int, str]] = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit():
                    head, _, rest = (entry / "stat").read_text().rpartition(")")
                    parents[int(entry.name)] = (int(rest.split()[1]), head.partition("(")[2])
            except OSError:
                continue
        found: list[tuple[int, int, str]] = []
        known = [self.process.pid]
        while known:
            parent = known.pop(0)
            for pid, (its_parent, name) in parents.items():
                if its_parent == parent:
                    found.append((pid, parent, name))
                    known.append(pid)
        return found

    def wait_for(self, holds: Callable[[list[dict[str, Any]]], bool], limit_seconds: float = 60) -> None:
        """Waits until that is true for the events in the file."""
        deadline = time.monotonic() + limit_seconds
        while not holds(read_events(self.timeline)):
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, f"not within {limit_seconds} s\n{self.output()}"
            time.sleep(0.1)

    def wait_for_events(self) -> None:
        """Waits until both ranks' operations are in the file."""
        self.wait_for(lambda events: {event["pid"] for event in events if event["name"] == "ALLREDUCE"} == {0, 1})


def python_with(*modules: str) -> str | None:
    """An interpreter for ranks with these modules: HVD_TEST_PYTHON, or this one."""
    python = os.environ.get("HVD_TEST_PYTHON", sys.executable)
    code = f"import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, {modules!r})))"
    return python if subprocess.run([python, "-c", code], timeout=60).returncode == 0 else None


def read_packets(path: pathlib.Path) -> list[dict[str, Any]]:
    """The packets of a file in Perfetto's format, read with hvd-timeline."""
    if not path.exists() or path.stat().st_size < 3:
        return []
    converted = path.with_suffix(".converted.json")
    argv = [str(BUILD / "tools/hvd-timeline/hvd-timeline"), "convert", str(path), "-o", str(converted)]
    subprocess.run(argv, check=True, timeout=60, env=environment(), capture_output=True)
    return read_events(converted)


def read_text(path: pathlib.Path) -> str:
    """A timeline's text; of a compressed one the readable part."""
    packed, text = path.read_bytes(), b""
    if path.suffix != ".gz":
        return packed.decode(errors="replace")
    while packed:
        member = zlib.decompressobj(wbits=31)
        text += member.decompress(packed)
        packed = member.unused_data
    return text.decode(errors="replace")


def read_events(path: pathlib.Path) -> list[dict[str, Any]]:
    """The complete events of a timeline that may end anywhere."""
    if path.suffix == ".pftrace":
        return read_packets(path)
    text = read_text(path) if path.exists() else ""
    if not text.endswith("]\n"):
        text = text[: text.rfind("},\n") + 1] + "]"
    events: list[dict[str, Any]] = json.loads(text) if text.startswith("[") else []
    return events
