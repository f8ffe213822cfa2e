"""A training run without a framework: its state has the samples that it has seen, and their sum by allreduce.

Both must be the same as in a run without faults: no sample is lost, and no sample counts twice.
ELASTIC_FOLDER: `steps` there gets a line for each step, "<time> <step> <size>", `begun` one for each step that a worker
begins, "<step> <worker>", and `restored` one for each rank that restores its last commit.
"""

import json
import os
import pathlib
import sys
import time

import numpy as np
from elastic_faults import die_if_told

import hvd.numpy as hvd
from hvd.elastic import ObjectState, broadcast_from_rank_0, run

SAMPLES, BATCH = 192, 4
FOLDER = pathlib.Path(os.environ["ELASTIC_FOLDER"])
PAUSE = float(os.environ.get("ELASTIC_PAUSE", "0.01"))
WORK = float(os.environ.get("ELASTIC_WORK", "0"))  # seconds in each step, before the sum
WORKER = os.environ["HVD_RANK"]  # the worker's number: before its first world, HVD_RANK is the number
WANTED = int(os.environ.get("ELASTIC_WANTED", "0"))  # the second half begins with that many ranks, if given


class NotedState(ObjectState):
    def restore(self) -> None:
        with (FOLDER / "restored").open("a") as file:
            file.write(f"{time.monotonic()}\n")
        super().restore()


def wait_for_others(state) -> None:  # type: ignore[no-untyped-def]
    limit = time.monotonic() + 60
    while hvd.size() < WANTED and time.monotonic() < limit:
        time.sleep(0.05)
        state.check_host_updates()


@run
def train(state) -> None:  # type: ignore[no-untyped-def]
    while len(state.seen) < SAMPLES:
        if len(state.seen) >= SAMPLES / 2:
            wait_for_others(state)
        left = sorted(set(range(SAMPLES)) - set(state.seen))
        mine = left[hvd.rank() * BATCH :][:BATCH]
        die_if_told(state.step)
        with (FOLDER / "begun").open("a") as file:
            file.write(f"{state.step + 1} {WORKER}\n")
        time.sleep(WORK)
        total = hvd.allreduce(np.array([sum(mine)], np.float64), op=hvd.Sum, name="total")
        big = hvd.allreduce(np.ones(30_000, np.float32), op=hvd.Sum, name="big")
        assert big[0] == big[-1] == hvd.size()
        seen = [sample for part in hvd.allgather_object(mine) for sample in part]
        state.seen, state.total, state.step = state.seen + seen, state.total + float(total[0]), state.step + 1
        if hvd.rank() == 0:
            with (FOLDER / "steps").open("a") as file:
                file.write(f"{time.monotonic()} {state.step} {hvd.size()}\n")
        time.sleep(PAUSE)
        state.commit()


hvd.init()
state = NotedState(broadcast_from_rank_0, hvd.rank, step=0, seen=[], total=0.0)
train(state)
assert state.total == SAMPLES * (SAMPLES - 1) / 2, state.total
if hvd.rank() == 0:
    assert os.environ["HOROVOD_RANK"] == "0", os.environ["HOROVOD_RANK"]
    assert os.environ["HOROVOD_SIZE"] == str(hvd.size())
    print(json.dumps({"size": hvd.size(), "seen": state.seen, "step": state.step}))
    sys.stdout.flush()
