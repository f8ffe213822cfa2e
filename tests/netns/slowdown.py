"""Measures how much strangers slow a job over two hosts: in turns without calls, with calls to unused ports, and to the job's.

Calls to unused ports show the cost of the strangers' own processor time on a shared machine, as here.
"""

from __future__ import annotations

import json
import statistics
import subprocess

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

# Prints every tenth step's time until the file exists.
TRAINING = """
import os, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
gradient, over, steps, told = np.ones(1 << 16, np.float32), False, 0, []
while not over:
    for _ in range(10): hvd.allreduce(gradient, name="gradient")
    told.append(time.monotonic())
    if len(told) == 1: print("ready", flush=True)
    if len(told) % 20 == 0: over = bool(hvd.broadcast(np.array([os.path.exists("/tmp/over")]), 0, name="over")[0])
if hvd.rank() == 0: open("/tmp/steps", "w").write(" ".join(map(str, told)))
"""
# Connects RATE times a second and holds each connection for half a second; in turns, and prints when each began and ended.
CALLER = """
import json, random, socket, sys, time
turns, seconds, rate, listeners = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
told = []
for turn in range(turns):
    for kind in random.sample(["peace", "nobody", "listeners"], 3):
        begin, calls, made = time.monotonic(), [], 0
        while (now := time.monotonic()) < begin + seconds:
            while kind != "peace" and len(calls) < 64:
                line = socket.socket()
                line.setblocking(False)
                host, port = random.choice(listeners)
                line.connect_ex((host, port if kind == "listeners" else 9))
                calls.append((now, line))
                if random.random() < (now - begin) * rate % 1: break
            while calls and now - calls[0][0] > 64 / rate:
                line = calls.pop(0)[1]
                try: line.getpeername(); made += 1
                except OSError: pass
                line.close()
            time.sleep(1 / rate)
        told.append([kind, begin, time.monotonic(), made])
        for _, line in calls: line.close()
        time.sleep(0.3)
print(json.dumps(told))
"""


def measure(cluster: Cluster, mpirun: str, turns: int, seconds: float, rate: int, **variables: str) -> dict[str, list[float]]:
    """Steps a second in each turn, by kind; "made" has the numbers of successful connections."""
    for name in ("over", "steps"):
        (cluster.tmp("alpha") / name).unlink(missing_ok=True)
    for host in ("alpha", "beta"):
        (cluster.tmp(host) / "training.py").write_text(TRAINING)
    argv = [hvdrun.program(), "--mpirun", mpirun, "-H", "alpha:1,beta:1", "--python", jobs.python(), "/tmp/training.py"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = cluster.popen("alpha", argv, env=jobs.environment(**variables), **pipes)
    try:
        begin = [hvdrun.read_line(job.stdout) for _ in range(2)]
        assert all("ready" in line for line in begin), "".join(begin) + job.communicate(timeout=30)[1]
        listeners = [[cluster.address(h), port] for h in ("alpha", "beta") for _, port in jobs.listening(cluster, h)]
        limit = turns * 3 * (seconds + 0.5) + 60
        words = ["python3", "-c", CALLER, str(turns), str(seconds), str(rate), json.dumps(listeners)]
        told = cluster.run("gamma", words, timeout=limit)
        (cluster.tmp("alpha") / "over").touch()
        out, err = job.communicate(timeout=60)
        assert job.returncode == 0, out + err
    finally:
        job.kill()
        job.wait(10)
    steps = [float(word) for word in (cluster.tmp("alpha") / "steps").read_text().split()]
    found: dict[str, list[float]] = {"peace": [], "nobody": [], "listeners": [], "made": []}
    for kind, start, end, made in json.loads(told.stdout):
        found[kind].append(10 * sum(start <= at < end for at in steps) / (end - start))
        if kind == "listeners":
            found["made"].append(made)
    return found


def text(found: dict[str, list[float]]) -> str:
    """Medians, and the cost of calls to the job's ports compared with any calls."""
    medians = {kind: statistics.median(rates) for kind, rates in found.items()}
    return (
        f"steps a second: {medians['peace']:.0f} in peace, {medians['nobody']:.0f} beside calls to nobody, "
        f"{medians['listeners']:.0f} beside calls to the job: {medians['nobody'] / medians['listeners'] - 1:+.1%}; "
        f"{sum(found['made']):.0f} calls got through"
    )
