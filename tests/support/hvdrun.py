"""hvdrun for tests: its path, bounded runs, and a job's remains."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from typing import IO, Any

import pytest

from support import verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATE = tempfile.TemporaryDirectory(prefix="hvd-test-state-")
SLOW_START = "hvdrun: waiting for "
LONGEST_PAUSE = 5.0  # seconds for which a shared machine may hold a process
MOST_PATIENCE = 10.0  # some tests wait that much longer
MOST_WAITED = 0.75  # one process waits all the time on a machine that is twice as slow, and on a slower one


def program() -> str:
    """hvdrun of the build folder, else the installed one."""
    build = pathlib.Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build"))
    built = build / "launcher/hvdrun"
    found = str(built) if built.exists() else shutil.which("hvdrun")
    assert found, f"no hvdrun: build it in {build} or set HVD_BUILD_DIR"
    return found


def mpiruns() -> list[Any]:
    """Parameters: Debian's Open MPI 4.1 and, where HVD_TEST_OPENMPI5 names it, Open MPI 5."""
    rows = []
    for name, path in (
        ("openmpi4", shutil.which("mpirun", path="/usr/bin")),
        ("openmpi5", os.environ.get("HVD_TEST_OPENMPI5")),
    ):
        there = bool(path) and os.access(str(path), os.X_OK)
        absent = pytest.mark.skip(reason=f"{name} is not there: {path} (HVD_TEST_OPENMPI5)")
        rows.append(pytest.param(path, id=name, marks=[] if there else [absent]))
    return rows


def nightly_for_openmpi5() -> list[Any]:
    """mpiruns() for tests that take long and differ little between the two."""
    four, five = mpiruns()
    return [four, pytest.param(*five.values, id=five.id, marks=[*five.marks, pytest.mark.nightly])]


def some_nightly(number: str | None, quick: int, all_of_them: int) -> list[Any]:
    """The rounds of a test: the requested number; else a few each time, and all in the nightly form."""
    if number is not None:
        return list(range(int(number)))
    return [pytest.param(r, marks=[pytest.mark.nightly] if r >= quick else []) for r in range(all_of_them)]


def environment(**extra: str) -> dict[str, str]:
    """Our environment without variables of an outer job or of a user's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "HOROVOD_", "PRTE_"))}
    kept["XDG_STATE_HOME"] = STATE.name  # hvdrun stores the last reports there
    for name in ("HVD_GRACE", "HVD_MPIRUN", "HVD_PYTHON", "NO_COLOR"):
        kept.pop(name, None)
    kept["HVD_SHARE_GPUS"] = "1"  # tests start any number of ranks, even with one GPU
    return {**kept, **extra}


def patience() -> float:
    """The factor by which this machine is slower now, or was in the last seconds, than an idle one."""
    cores = len(os.sched_getaffinity(0))
    running = int(pathlib.Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    # The load is a mean of a minute, and lags in a burst.
    slower = max(1.0, os.getloadavg()[0] / cores, running / cores, 1 / (1 - min(waited_share(), MOST_WAITED)))
    return min(slower, MOST_PATIENCE)


def within(seconds: float) -> float:
    """A limit for what takes at most `seconds` on an idle machine: on this one, and with one pause of a process."""
    return LONGEST_PAUSE + seconds * patience()


def waited_share() -> float:
    """The share of the last 10 s in which some process waited for a core.  0: this kernel does not tell."""
    try:
        found = re.match(r"some avg10=([\d.]+)", pathlib.Path("/proc/pressure/cpu").read_text())
    except OSError:
        return 0.0
    return float(found[1]) / 100 if found else 0.0


def said(text: str) -> str:
    """hvdrun's output without its notes on slowly starting ranks, which come first on a busy machine."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(SLOW_START))


def read_line(stream: IO[str] | None) -> str:
    """The next line; "" at the end. Reads without a buffer: Popen.communicate() loses text that a buffer holds."""
    assert stream is not None
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(stream.fileno(), 1)):
        line += byte
    return line.decode()


def next_line(stream: IO[str] | None) -> str:
    """hvdrun's next line, without those notes; "" at the end."""
    while (line := read_line(stream)).startswith(SLOW_START):
        pass
    return line


def wait_until(condition: Callable[[], Any], what: str, limit_seconds: float = 60) -> Any:
    """Polls until the condition is true, and returns its value; the limit is for hangs only."""
    deadline = time.monotonic() + limit_seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {limit_seconds:g} s"
        time.sleep(0.02)
    return value


def run(
    *args: str, timeout: float = 120, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs hvdrun to its end; stderr as said() returns it.  Checks the verdict that it writes."""
    with tempfile.TemporaryDirectory(prefix="hvd-test-verdict-") as folder:
        verdict = pathlib.Path(folder, "verdict.json")
        done = subprocess.run(
            [program(), *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment(**{"HVD_VERDICT_FILENAME": str(verdict), **(env or {})}),
            **options,
        )
        verdicts.check_file(verdict, done.returncode)
    done.stderr = said(done.stderr)
    return done


@contextlib.contextmanager
def started(*args: str, env: dict[str, str] | None = None, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A running hvdrun; killed when the block ends.  Checks the verdict that it has written until then."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with tempfile.TemporaryDirectory(prefix="hvd-test-verdict-") as folder:
        verdict = pathlib.Path(folder, "verdict.json")
        process = subprocess.Popen(
            [program(), *args],
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment(**{"HVD_VERDICT_FILENAME": str(verdict), **(env or {})}),
            **options,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(60)
        if verdict.exists():
            verdicts.checked(verdict.read_text())


def python_args() -> list[str]:
    """The options that make the ranks use this interpreter."""
    return ["--python", sys.executable]


class Sleepers:
    """A command that marks its processes, so that they can be found again, even after setsid or env -i."""

    def __init__(self) -> None:
        self.mark = f"9{uuid.uuid4().int % 10**9}"  # seconds to sleep: unique, and long

    def command(self) -> list[str]:
        """Returns the ranks' command. Each rank has three processes, two of them in sessions of their own."""
        return ["sh", "-c", f"setsid sh -c 'sleep {self.mark}; true' & env -i setsid sleep {self.mark} & sleep {self.mark}"]

    def alive(self) -> list[int]:
        """The living processes."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit():
                    continue
                command = (entry / "cmdline").read_bytes()
                if self.mark.encode() in command and b"hvdrun" not in command.split(b"\0")[0]:
                    found.append(int(entry.name))
        return found

    def wait_for(self, count: int, limit_seconds: float = 60) -> None:
        """Waits until `count` processes live (0: none)."""
        deadline = time.monotonic() + limit_seconds
        while (len(self.alive()) < count) if count else self.alive():
            assert time.monotonic() < deadline, f"{len(self.alive())} processes instead of {count}: {self.alive()}"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kills the processes, so that a failed test leaves nothing."""
        for pid in self.alive():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Child processes of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


def state(pid: int) -> str:
    """The state letter in /proc: R, S, T, Z …; "" once it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
