"""A rank of faults.py: trains until it is told to end, and kills or stops itself at the points that its orders name.

FAULTS_FOLDER: `steps` there gets "<time> <step> <workers, by rank>" for each step, `restored` a time for each rank that
restores its last commit.  `order.<n>` is a JSON object: at `point` the first worker that is not `spared` takes it, by
renaming it to `taken.<n>.<worker>`, and executes it.  `enough` ends the training.
FAULTS_COMMIT: steps between commits.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import signal
import sys
import threading
import time
from typing import Any

import fault_training as training
import numpy as np

import hvd.numpy as hvd
from hvd import elastic
from hvd._elastic import shares as _shares
from hvd._runtime import world as _world

FOLDER = pathlib.Path(os.environ["FAULTS_FOLDER"])
COMMIT = int(os.environ.get("FAULTS_COMMIT", "1"))
PAUSE = float(os.environ.get("FAULTS_PAUSE", "0.01"))
WORKER = int(os.environ["HVD_RANK"])  # before its first world, this is its number
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM, "guard": signal.SIGKILL}


def strike(order: dict[str, Any]) -> None:
    os.kill(os.getppid() if order["do"] == "guard" else os.getpid(), SIGNALS[order["do"]])


def order_for(where: str) -> dict[str, Any] | None:
    """The order that this worker has taken, if any."""
    for name in os.listdir(FOLDER):
        if not name.startswith("order."):
            continue
        with contextlib.suppress(OSError, ValueError):
            order: dict[str, Any] = json.loads((FOLDER / name).read_text())
            if order["point"] != where or WORKER in order["spared"]:
                continue
            (FOLDER / name).rename(FOLDER / f"{name.replace('order', 'taken')}.{WORKER}")
            return order
    return None


def point(where: str) -> None:
    """A place in the program where a worker may be struck."""
    if order := order_for(where):
        strike(order)


def meet() -> None:
    """Calls init().  A worker may be struck while it connects, which is when init() starts its first thread."""
    point("before the meeting")
    order, over = order_for("in the meeting"), threading.Event()
    before = len(os.listdir("/proc/self/task")) + 1  # with the watching thread

    def watch() -> None:
        assert order
        while len(os.listdir("/proc/self/task")) <= before and not over.is_set():
            time.sleep(0)
        strike(order)

    if order:
        threading.Thread(target=watch, daemon=True).start()
    init()
    over.set()
    point("after the meeting")


def leave() -> None:
    point("before leaving")
    shutdown()
    point("after leaving")


def agree() -> None:
    point("before the shares")
    shares()


init, shutdown, shares = _world.init, _world.shutdown, _shares.agree
_world.init, _world.shutdown, _shares.agree = meet, leave, agree  # type: ignore[assignment]


def broadcast(obj: Any) -> Any:
    given = elastic.broadcast_from_rank_0(obj)
    point("in sync")
    return given


def room() -> int:
    """Bytes of address space in use, and a little more."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (16 << 20)


class StruckState(elastic.ObjectState):
    """A state with a fault point in each of its methods: an order may kill or stop the worker there."""

    course: training.Course
    filling: Any

    def save(self) -> None:
        if order_for("full memory"):
            # Each worker raises a different error: the same one three times would be a bug of the program.
            self.filling = np.zeros((64 << 20) + WORKER, np.uint8)
            resource.setrlimit(resource.RLIMIT_AS, (room(), resource.RLIM_INFINITY))
        super().save()

    def restore(self) -> None:
        with (FOLDER / "restored").open("a") as file:
            file.write(f"{time.monotonic()}\n")
        point("before restore")
        super().restore()

    def sync(self) -> None:
        point("before sync")
        super().sync()
        point("after sync")

    def check_host_updates(self) -> None:
        point("kept")
        try:
            super().check_host_updates()
        finally:
            point("in commit")

    def saved_copy(self) -> Any:
        return super().saved_copy()  # hvd requires it beside the save() above, in the same class

    def use_saved_copy(self, copy: Any) -> None:
        super().use_saved_copy(copy)
        _shares.keep(copy["values"]["shares"])


@elastic.run(keep_global_batch=True)
def train(state: Any) -> None:
    state.shares = _shares.count()
    workers = ",".join(str(worker) for worker in hvd.allgather_object(WORKER))
    while not elastic.broadcast_from_rank_0((FOLDER / "enough").exists()):
        point("step")
        mine = [training.row(state.course.weights, state.course.step, share, state.shares) for share in _shares.mine()]
        sent = np.stack(mine) if mine else np.zeros((0, 2 + training.PART + training.WEIGHTS))
        rows = hvd.allgather(sent, name="rows") if hvd.size() > 1 else sent
        big = hvd.allreduce(np.ones(30_000, np.float32), op=hvd.Sum, name="big")
        assert big[0] == big[-1] == hvd.size(), big
        state.course = training.advance(state.course, rows, state.shares)
        if hvd.rank() == 0:
            with (FOLDER / "steps").open("a") as file:
                file.write(f"{time.monotonic()} {state.course.step} {workers}\n")
        point("before commit")
        time.sleep(PAUSE)
        if state.course.step % COMMIT == 0:
            state.commit()


def held() -> dict[str, int]:
    """Resources that must not grow with the faults."""
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "shared": sum("/dev/shm" in line or "memfd" in line for line in maps),
    }


point("begin")
_world.init()
state = StruckState(broadcast, hvd.rank, course=training.begin(), shares=0, filling=None)
state.register_reset_callbacks([lambda: point("reset")])
train(state)
if hvd.rank() == 0:
    print("result", json.dumps({**training.summary(state.course), **held(), "size": hvd.size()}))
    sys.stdout.flush()
