"""Whether the report names a cause that was planted: real jobs, one cause each, and clean ones.

    scripts/bench/planted.py --ranks 2 --rounds 1 --steps 200

Prints a table: the cause, on which rank, what the report said, and whether that is right.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

JOB = pathlib.Path(__file__).with_name("planted_job.py")


class Cause(NamedTuple):
    """What is planted, and what the report ought to say."""

    what: str
    said: str
    everywhere: bool = False  # on all ranks; else on the last
    steps: int = 1  # times --steps


CAUSES = [
    Cause("input sleeps", "INPUT"),
    Cause("input sleeps", "INPUT", True),
    Cause("input stalls now and then", "INPUT"),
    Cause("input computes", "INPUT"),
    Cause("twice the work", "STRAGGLER"),
    Cause("pause", "STRAGGLER"),
    Cause("a neighbour on its core", "STRAGGLER"),
    Cause("torch.save", "CHECKPOINT"),
    Cause("torch.save", "CHECKPOINT", True),
    Cause("gc.collect()", "GC"),
    Cause("gc.collect()", "GC", True),
    Cause("1000 small operations", "COMMUNICATION", True),
    Cause("48 MB of data", "COMMUNICATION", True),
    Cause("tensors are kept", "MEMORY_CREEP", steps=3),
    Cause("nothing", "BALANCED", True),
]


def run(cause: Cause, ranks: int, steps: int) -> dict[str, object]:
    """The report of one job."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        job = [sys.executable, str(JOB), cause.what, "-1" if cause.everywhere else str(ranks - 1), str(steps)]
        argv = ["hvdrun", "-np", str(ranks), "--report-filename", str(report), "--no-report", *job]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            sys.exit(f"{cause.what}: {done.stderr}")
        return dict(json.loads(report.read_text()))


def main() -> None:
    """See the file's comment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", help="causes whose name has this in it")
    arguments = parser.parse_args()
    right = total = 0
    for _ in range(arguments.rounds):
        for cause in CAUSES:
            if arguments.only and arguments.only not in cause.what:
                continue
            report = run(cause, arguments.ranks, arguments.steps * cause.steps)
            findings = report["findings"]
            assert isinstance(findings, list)
            first = findings[0] if findings else {"cause": "none", "ranks": [], "what": "no finding"}
            ranks = [] if cause.everywhere else [arguments.ranks - 1]
            good = first["cause"] == cause.said and (first["ranks"] == ranks or cause.said == "MEMORY_CREEP")
            right += good
            total += 1
            where = "all ranks" if cause.everywhere else f"rank {ranks[0]}"
            more = " | and ".join(f["cause"] for f in findings[1:])
            print(
                f"{'right' if good else 'WRONG'}  {cause.what:28} {where:9}  {first['cause']:14} "
                f"{first['ranks']!s:6} {first['what']}{'; and ' + more if more else ''}",
                flush=True,
            )
    print(f"{right} of {total} right")


if __name__ == "__main__":
    main()
