#!/usr/bin/env python3
"""Compares --autotune's result between two hosts with the default and a grid: autotune.py [--rate 1gbit …] [--only W …] (root).

Hosts are network namespaces of this machine (tests/netns), with a rank each; --rate limits their network interfaces by tc.
hvdrun is the one in PATH. Each workload is tuned in one job (at most --seconds). Then short jobs take turns, round by round:
with the default, the tuned settings, and the points of a grid. --autotune-from sets the points. The grid has each value of one
setting around the default and around the tuned settings, and --random further points. The table has microseconds a step.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import shutil
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from hosts import limit  # noqa: E402

from netns.cluster import Cluster  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
WORKLOADS = {"64MiB": [64 * MIB], "160x640KB": [640_000] * 160, "200x4KB": [4_000] * 200, "mixed": [4 * MIB, 40_000, 400] * 20}
# The values of runtime/core/settings/tuning.cc for nodes with one rank each.
GRID = {
    "slice_bytes": [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 0, 2 * MIB, 4 * MIB],
    "fusion_bytes": [MIB << i for i in range(8)],
    "latency_ns": [2_000, 5_000, 15_000, 50_000, 200_000, 1_000_000],
    "hold_ns": [0, 100_000, 300_000, 1_000_000, 3_000_000],
}
DEFAULT = {"slice_bytes": 0, "fusion_bytes": 128 * MIB, "latency_ns": 15_000, "hold_ns": 1_000_000}
FORM = "hosts=2 ranks=2 transport=auto"
PROGRAM = """
import sys, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
sizes, seconds = eval(sys.argv[1]), float(sys.argv[2])
tensors = [np.ones(max(1, bytes // 4), np.float32) for bytes in sizes]
times, end, go_on = [], time.monotonic() + seconds, np.ones(1, np.float32)
while go_on[0] > 0:
    go_on[0] = time.monotonic() < end
    start = time.perf_counter()
    handles = [hvd.allreduce_async_(t, name=f"t{i}", op=hvd.Average) for i, t in enumerate(tensors)]
    handles.append(hvd.allreduce_async_(go_on, name="go on", op=hvd.Min))
    for handle in handles: hvd.synchronize(handle)
    times.append(time.perf_counter() - start)
if hvd.rank() == 0:
    times = sorted(times[len(times) // 5:])
    print("STEP", 1e6 * times[len(times) // 2])
"""
Setting = dict[str, int]


def line_of(setting: Setting) -> str:
    """The line of a setting for --autotune-from."""
    return FORM + "".join(f" {name}={value}" for name, value in setting.items()) + "\n"


def setting_in(text: str) -> Setting:
    """The setting in the file's last line; the default if the file has none."""
    words = text.splitlines()[-1].split() if text else []
    found = dict(word.split("=") for word in words)
    return {name: int(found.get(name, value)) for name, value in DEFAULT.items()}


def grid_of(found: Setting, more: int, seed: int) -> list[Setting]:
    """Points to compare with, without duplicates."""
    around = [{**centre, name: value} for centre in (DEFAULT, found) for name, values in GRID.items() for value in values]
    dice = random.Random(seed)
    around += [{name: dice.choice(values) for name, values in GRID.items()} for _ in range(more)]
    return [dict(items) for items in dict.fromkeys(tuple(s.items()) for s in around) if dict(items) not in (DEFAULT, found)]


class Bench:
    """Jobs of one workload on the hosts of a cluster."""

    def __init__(self, cluster: Cluster, workload: str) -> None:
        self.cluster, self.workload = cluster, workload
        self.file, self.script = cluster.tmp("alpha") / "tuned", cluster.tmp("alpha") / "steps.py"
        for host in cluster.names:
            (cluster.tmp(host) / "steps.py").write_text(PROGRAM)

    def job(self, seconds: float, *options: str) -> float:
        """Median microseconds of a step; not a number when the job failed."""
        hvdrun = shutil.which("hvdrun")
        assert hvdrun, "no hvdrun in PATH"
        words = [hvdrun, "-np", "2", "-H", "alpha:1,beta:1", "--autotune-from", "/tmp/tuned", *options, sys.executable]
        words += ["/tmp/steps.py", str(WORKLOADS[self.workload]), str(seconds)]
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        done = self.cluster.run("alpha", words, timeout=seconds + 60, env=kept)
        figures = [float(line.split("STEP ", 1)[1]) for line in done.stdout.splitlines() if "STEP " in line]
        if not figures:
            print(done.stdout[-500:], done.stderr[-1000:], file=sys.stderr)
        return figures[0] if figures else float("nan")

    def with_setting(self, setting: Setting, seconds: float) -> float:
        """A short job with fixed settings."""
        self.file.write_text(line_of(setting))
        return self.job(seconds)

    def tuned(self, seconds: float, samples: int) -> tuple[Setting, int]:
        """The setting that tuning found from the default, and the number of candidates that it tried."""
        self.file.unlink(missing_ok=True)
        options = ["--autotune", "--autotune-log-file", "/tmp/log.csv", "--autotune-steps-per-sample", "3"]
        self.job(seconds, *options, "--autotune-bayes-opt-max-samples", str(samples))
        text = self.file.read_text() if self.file.exists() else ""
        if not text:
            print(f"{self.workload}: not at an end after {seconds} s", file=sys.stderr)
        log = self.cluster.tmp("alpha") / "log.csv"
        return setting_in(text), len(log.read_text().splitlines()) - 1 if log.exists() else 0


def main() -> int:
    """See the file's comment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", nargs="+", default=["none", "10gbit", "1gbit"], help="as tc takes it; none: as it is")
    parser.add_argument("--only", nargs="+", default=list(WORKLOADS), choices=WORKLOADS)
    parser.add_argument("--seconds", type=float, default=60.0, help="most for tuning")
    parser.add_argument("--samples", type=int, default=30, help="most candidates")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--random", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    names = ["default", "tuned", "grid best", "best/tuned", "candidates"]
    print(f"{'us a step':12}{'rate':>8}" + "".join(f"{name:>11}" for name in names) + "  tuned to")
    for rate in options.rate:
        with Cluster(2) as cluster:
            if rate != "none" and (why_not := limit(cluster, rate)):
                sys.exit(why_not)
            for workload in options.only:
                bench = Bench(cluster, workload)
                found, candidates = bench.tuned(options.seconds, options.samples)
                settings = [DEFAULT, found, *grid_of(found, options.random, options.seed)]
                times: list[list[float]] = [[] for _ in settings]
                for _ in range(options.rounds):
                    for setting, of in zip(settings, times, strict=True):
                        of.append(bench.with_setting(setting, 1.0))
                least = [min(of) for of in times]
                # The best of many may be best by chance, so it takes turns with the tuned setting once more.
                best = min(range(2, len(settings)), key=lambda i: least[i])
                again = [(bench.with_setting(found, 1.0), bench.with_setting(settings[best], 1.0)) for _ in range(3)]
                ratio = statistics.median(b / a for a, b in again)
                changed = {name: value for name, value in found.items() if value != DEFAULT[name]}
                cells = f"{least[0]:11.0f}{least[1]:11.0f}{least[best]:11.0f}{ratio:11.2f}{candidates:11}"
                print(f"{workload:12}{rate:>8}{cells}  {changed or 'the default'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
