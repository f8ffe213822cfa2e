"""How long an elastic job takes from the death of a rank to the next completed step, and what commit() costs.

    scripts/bench/elastic.py --ranks 2,4,8,16 --rounds 5

Each round is a job of its own, of which one rank is killed by SIGKILL.  Steps are 10 ms of sleep and an allreduce.
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

PROGRAM = """
import os, sys, time
import numpy as np
import hvd.numpy as hvd
from hvd.elastic import ObjectState, broadcast_from_rank_0, run
hvd.init()
folder = sys.argv[1]
if hvd.rank() == hvd.size() - 1:
    open(f"{folder}/pid", "w").write(str(os.getpid()))

@run
def train(state):
    while state.after < 5:
        hvd.allreduce(np.ones(1000, np.float32), name="gradient")
        time.sleep(0.01)
        state.step += 1
        state.after += state.after > 0 or hvd.size() < state.whole  # a new one may have joined before the fifth
        if hvd.rank() == 0:
            with open(f"{folder}/steps", "a") as file:
                file.write(f"{time.monotonic()} {state.step} {hvd.size()}\\n")
        before = time.perf_counter()
        state.commit()
        state.commits.append(time.perf_counter() - before)
        del state.commits[:-50]

values = dict(step=0, after=0, whole=hvd.size(), commits=[], data=np.zeros(int(sys.argv[2]) << 18, np.float32))
state = ObjectState(broadcast_from_rank_0, hvd.rank, **values)
train(state)
if hvd.rank() == 0:
    print("commit", sorted(state.commits)[len(state.commits) // 2])
"""


def once(ranks: int, megabytes: int) -> tuple[float, int, float]:
    """Seconds from the kill to the end of the next step, steps lost, seconds of a commit()."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "train.py")
        script.write_text(PROGRAM)
        hvdrun = shutil.which("hvdrun")
        assert hvdrun, "no hvdrun in PATH"
        command = [hvdrun, "-np", str(ranks), "--min-np", "1", "--python", sys.executable, str(script), folder, str(megabytes)]
        steps = pathlib.Path(folder, "steps")
        job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        limit = time.monotonic() + 120
        while not steps.exists() or len(steps.read_text().splitlines()) < 20:
            assert time.monotonic() < limit and job.poll() is None, "the job does not begin"
            time.sleep(0.005)
        killed = time.monotonic()
        os.kill(int(pathlib.Path(folder, "pid").read_text()), signal.SIGKILL)
        out, _ = job.communicate(timeout=120)
        assert job.returncode == 0, out
        rows = [line.split() for line in steps.read_text().splitlines()]
        first = next(number for number, row in enumerate(rows) if int(row[2]) < ranks)
        lost = int(rows[first - 1][1]) - int(rows[first][1]) + 1
        return float(rows[first][0]) - killed, lost, float(out.split("commit")[1].split()[0])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4,8,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--state", type=int, default=1, metavar="MIB", help="size of the state")
    options = parser.parse_args()
    print("ranks  kills  kill → next step: median    longest  steps lost  commit()")
    for ranks in (int(word) for word in options.ranks.split(",")):
        rounds = [once(ranks, options.state) for _ in range(options.rounds)]
        seconds = [row[0] for row in rounds]
        commit = statistics.median(row[2] for row in rounds)
        lost = max(row[1] for row in rounds)
        print(
            f"{ranks:5}  {len(seconds):5}  {statistics.median(seconds):22.3f} s  {max(seconds):7.3f} s  {lost:10}"
            f"  {1000 * commit:5.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
