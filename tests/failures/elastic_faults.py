"""Ranks that kill themselves, once in a job.

ELASTIC_KILL: JSON list of [step, [ranks]]: at that step (of the state) these ranks of the world kill themselves.
ELASTIC_FOLDER: the folder for notes of this.
With hvdrun --state-dir a rank dies after the first commit has been written: on a slow disk that takes longer than a step.
"""

import json
import os
import pathlib
import signal
import threading
import time

from hvd.numpy import rank

FOLDER = pathlib.Path(os.environ["ELASTIC_FOLDER"])
KILLS = json.loads(os.environ.get("ELASTIC_KILL", "[]"))


def die_if_told(step: int) -> None:
    for number, (at, ranks) in enumerate(KILLS):
        note = FOLDER / f"killed.{number}.{rank()}"
        if step < at or rank() not in ranks or note.exists():
            continue
        if all((FOLDER / f"killed.{earlier}.{r}").exists() for earlier in range(number) for r in KILLS[earlier][1]):
            if step > 0:
                wait_for_first_write()
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def wait_for_first_write() -> None:
    """Waits for at most 10 s: in some tests no process can write to the folder."""
    limit = time.monotonic() + 10
    file = pathlib.Path(os.environ.get("HVD_STATE_DIR", ""), "elastic-state")
    while "HVD_STATE_DIR" in os.environ and not file.exists() and time.monotonic() < limit:
        time.sleep(0.01)


def die_in_init(late: bool) -> None:
    """Makes one of the first workers, or the first late worker, die in hvd.init(), after it has met the other ranks. init()
    starts its first thread at that moment. Call this before hvd.init()."""
    note = FOLDER / "died in init"
    is_late = os.environ["HVD_ELASTIC_LATE"] == "1"
    if is_late != late or note.exists() or (not late and os.environ["HOROVOD_RANK"] != "1"):
        return

    def watch() -> None:
        while len(os.listdir("/proc/self/task")) <= before + 1:
            pass
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    before = len(os.listdir("/proc/self/task"))
    threading.Thread(target=watch, daemon=True).start()
