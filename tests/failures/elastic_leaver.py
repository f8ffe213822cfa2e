"""Training steps.  Each worker notes the begin of a step in `begun`: "<step> <worker>".  Worker 1 gets SIGTERM in step 3.
`restored` and `synced` are similar, with the number of finished steps.

ELASTIC_LEAVER: "late": in its commit(), after the agreement on leaving ranks; "alone": most steps, including this one, have
check_host_updates() without commit(); "own": the script's own check_host_updates() makes no agreement.
"""

import json
import os
import pathlib
import signal
import sys
import time

import numpy as np

import hvd.numpy as hvd
from hvd.elastic import ObjectState, broadcast_from_rank_0, run

FOLDER, HOW, WORKER = pathlib.Path(os.environ["ELASTIC_FOLDER"]), os.environ["ELASTIC_LEAVER"], os.environ["HVD_RANK"]
STEPS = 12


def note(name: str, text: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(f"{text} {WORKER}\n")


class NotedState(ObjectState):
    step: int

    def restore(self) -> None:
        note("restored", str(self.step))
        super().restore()

    def sync(self) -> None:
        note("synced", str(self.step))
        super().sync()

    def check_host_updates(self) -> None:
        if HOW != "own":
            super().check_host_updates()
        if HOW == "late":
            self.leave()

    def leave(self) -> None:
        if WORKER == "1" and self.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)


@run
def train(state: NotedState) -> None:
    while state.step < STEPS:
        note("begun", str(state.step + 1))
        total = hvd.allreduce(np.ones(1), op=hvd.Sum, name="total")
        assert total[0] == hvd.size()
        time.sleep(0.02)
        state.step += 1
        if HOW != "late":
            state.leave()
        if HOW == "alone" and state.step % 5:
            state.check_host_updates()
        else:
            state.commit()


hvd.init()
train(NotedState(broadcast_from_rank_0, hvd.rank, step=0))
if hvd.rank() == 0:
    print(json.dumps({"size": hvd.size()}))
    sys.stdout.flush()
