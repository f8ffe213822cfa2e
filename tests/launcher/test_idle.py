"""An idle job wakes no process, and still ends on time."""

from __future__ import annotations

import pathlib
import re
import time

from support import hvdrun


def children(pid: int) -> list[int]:
    """The child processes of all threads."""
    found = [path.read_text().split() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted(int(child) for line in found for child in line)


def wakes(pids: list[int]) -> int:
    """Returns the number of voluntary context switches of the processes' main threads."""
    texts = [pathlib.Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(found[1]) for text in texts if (found := re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)))


def test_nobody_wakes() -> None:
    """hvdrun and two guards together wake less often than one of them did when each had a timer."""
    with hvdrun.started("-np", "2", "--", "sleep", "60") as job:

        def guards() -> list[int]:
            return [guard for daemon in children(job.pid) for guard in children(daemon)]

        hvdrun.wait_until(lambda: sum(len(children(guard)) for guard in guards()) == 2, "two ranks", 30)
        watched = [job.pid, *guards()]
        hvdrun.wait_until(lambda: (before := wakes(watched), time.sleep(3), wakes(watched) - before < 6)[-1], "rest", 30)


def test_time_limit_of_an_idle_job() -> None:
    """No periodic check is needed."""
    begin = time.monotonic()
    done = hvdrun.run("-np", "2", "--time-limit", "2", "--", "sleep", "60")
    assert done.returncode != 0 and 2 <= time.monotonic() - begin < hvdrun.within(20), done.stderr
