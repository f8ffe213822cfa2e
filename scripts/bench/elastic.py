"""Measures an elastic job's time from a rank's death to the next completed step, and the cost of commit().

    scripts/bench/elastic.py --ranks 2,4,8,16 --rounds 5
    scripts/bench/elastic.py --ranks 2 --spares 1 --torch --state 64      a spare takes over
    scripts/bench/elastic.py --ranks 2 --growth --torch                   a new rank: how long the others do no step

Each round is a job of its own.  SIGKILL kills one of its ranks, or the job gets another slot.  Steps are 10 ms of sleep and an
allreduce.  With --torch the state is a model and its optimizer, Adam with moments; a third of it is weights.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

PROGRAM = """
import os, sys, time
import numpy as np
FOLDER, MIB, TORCH = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
if TORCH:
    import torch
    import hvd.torch as of_torch
import hvd.numpy as hvd
from hvd.elastic import ObjectState, broadcast_from_rank_0, run
hvd.init()

values = dict(step=0, after=0, commits=[])
if TORCH:
    model = torch.nn.Linear(1024, max(1, MIB << 8) // 3)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer = of_torch.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = of_torch.elastic.TorchState(model, optimizer, **values)
else:
    state = ObjectState(broadcast_from_rank_0, hvd.rank, data=np.zeros(MIB << 18, np.float32), **values)
state.register_reset_callbacks([lambda: setattr(state, "after", 1)])  # rank 0's counts: new ones get it
open(f"{FOLDER}/{'ready' if os.environ['HVD_ELASTIC_LATE'] == '1' else 'rank'}.{hvd.rank()}.{os.getpid()}", "w").close()

@run
def train(state):
    if TORCH and state.step == 0:
        model(torch.ones(1, 1024)).sum().backward()
        optimizer.step()
    while state.after < 5:
        hvd.allreduce(np.ones(1000, np.float32), name="gradient")
        time.sleep(0.01)
        state.step += 1
        state.after += state.after > 0
        if hvd.rank() == 0:
            with open(f"{FOLDER}/steps", "a") as file:
                file.write(f"{time.monotonic()} {state.step} {state.after}\\n")
        before = time.perf_counter()
        state.commit()
        state.commits.append(time.perf_counter() - before)
        del state.commits[:-50]

train(state)
if hvd.rank() == 0:
    print("commit", sorted(state.commits)[len(state.commits) // 2])
"""


class Step(NamedTuple):
    """A step that rank 0 has completed."""

    at: float
    number: int
    after: int  # number of the step after the ranks have met again


def wait_until(condition: object, job: subprocess.Popen[str]) -> None:
    """Polls until the condition is true or the job has ended."""
    limit = time.monotonic() + 300
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < limit and job.poll() is None, "the job does not go on"
        time.sleep(0.005)


def once(ranks: int, options: argparse.Namespace) -> tuple[float, int, float]:
    """Seconds to the end of the next step, steps lost, seconds of a commit()."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        script, slots, steps = folder / "train.py", folder / "slots", folder / "steps"
        script.write_text(PROGRAM)
        slots.write_text(f"#!/bin/sh\necho localhost:{ranks}\n")
        slots.chmod(0o755)
        hvdrun = shutil.which("hvdrun")
        assert hvdrun, "no hvdrun in PATH"
        command = [hvdrun, "-np", str(ranks), "--min-np", "1", "--python", sys.executable]
        if options.growth:
            command += ["--max-np", str(ranks + 1), "--host-discovery-script", str(slots)]
        if options.spares:
            command += ["--spares", str(options.spares)]
        command += [str(script), name, str(options.state), str(options.torch)]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        wait_until(lambda: steps.exists() and len(steps.read_text().splitlines()) > 20, job)
        wait_until(lambda: len(list(folder.glob("ready.*"))) == options.spares, job)
        time.sleep(1 if options.spares else 0)
        begun = time.monotonic()
        if options.growth:
            fresh = folder / "fresh"
            fresh.write_text(f"#!/bin/sh\necho localhost:{ranks + 1}\n")
            fresh.chmod(0o755)
            fresh.rename(slots)
        else:
            (victim,) = folder.glob(f"rank.{ranks - 1}.*")
            os.kill(int(victim.suffix[1:]), signal.SIGKILL)
        out, _ = job.communicate(timeout=300)
        assert job.returncode == 0, out
        rows = [
            Step(float(at), int(number), int(after)) for at, number, after in map(str.split, steps.read_text().splitlines())
        ]
        first = next(place for place, row in enumerate(rows) if row.after)
        before = rows[first - 1]
        return rows[first].at - (before.at if options.growth else begun), before.number - rows[first].number + 1, commit_of(out)


def commit_of(out: str) -> float:
    """Seconds, as printed by the job."""
    return float(out.split("commit")[1].split()[0])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4,8,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--state", type=int, default=1, metavar="MIB", help="size of the state")
    parser.add_argument("--spares", type=int, default=0, metavar="N", help="ranks more that wait to take over")
    parser.add_argument("--growth", action="store_true", help="a slot is added, and nobody killed")
    parser.add_argument("--torch", action="store_true", help="a state of PyTorch")
    options = parser.parse_args()
    what = "last step → next step" if options.growth else "kill → next step"
    print(f"ranks  rounds  {what}: median    longest  steps lost  commit()")
    for ranks in (int(word) for word in options.ranks.split(",")):
        rounds = [once(ranks, options) for _ in range(options.rounds)]
        seconds = [row[0] for row in rounds]
        commit = statistics.median(row[2] for row in rounds)
        lost = max(row[1] for row in rounds)
        print(
            f"{ranks:5}  {len(seconds):6}  {statistics.median(seconds):{len(what) + 6}.3f} s  {max(seconds):7.3f} s"
            f"  {lost:10}  {1000 * commit:5.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
