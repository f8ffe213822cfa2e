"""Runs the parts of the test suite, and adds up: see scripts/test."""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from ahead import Ahead
from context import Context, Part
from parts import PARTS
from tally import Tally


def clean_environment() -> dict[str, str]:
    """This environment with .venv first in PATH, less what a job around us may have left."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HVD_", "HOROVOD_", "OMPI_", "PMIX_", "SLURM_", "PYTHON")) and name != "VIRTUAL_ENV"
    }
    root = pathlib.Path.cwd()
    kept["PATH"] = f"{root}/.venv/bin:{kept['PATH']}"
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept


def main() -> int:
    """See the file's comment; the exit code is the suite's."""
    parser = argparse.ArgumentParser(prog="scripts/test")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--nightly", action="store_true")
    parser.add_argument("--spark", action="store_true", help="the part spark in its long form")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    if arguments.spark:
        arguments.parts, arguments.nightly = [*arguments.parts, "spark"], True
    if arguments.list:
        for part in PARTS:
            print(f"{part.name:10} {part.what}{' (nightly)' if part.nightly else ''}")
        return 0
    unknown = set(arguments.parts) - {part.name for part in PARTS}
    if unknown:
        print(f"scripts/test: no part {', '.join(sorted(unknown))} (scripts/test --list)", file=sys.stderr)
        return 2
    chosen = [p for p in PARTS if (p.name in arguments.parts if arguments.parts else arguments.nightly or not p.nightly)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    ahead = Ahead()
    try:
        return run(chosen, arguments.nightly, ahead)
    finally:
        ahead.end()


def run(chosen: list[Part], nightly: bool, ahead: Ahead) -> int:
    """One part after the other, then the sum; the exit code."""
    total, lines = Tally(), []
    built_ahead = {"asan", "tsan"} & {part.name for part in chosen}
    for part in chosen:
        print(f"== {part.name}: {part.what}", flush=True)
        start, used = time.monotonic(), processor_seconds()
        if part.name in built_ahead:
            ahead.end()
        try:
            tally = part.run(Context(part, clean_environment(), nightly))
        except Exception as error:  # a part that breaks is a failed test, and the others still run
            tally = Tally(failed=[f"{part.name}: {type(error).__name__}: {error}"])
        line = f"{part.name:10} {time.monotonic() - start:6.1f} s  {processor_seconds() - used:6.1f} s of processor  {tally}"
        lines.append(line)
        for failure in tally.failed:
            print(f"   FAILED {failure}")
        print(f"   {line}", flush=True)
        total += tally
        if part.name == "unit" and built_ahead:  # from here on most suites wait more than they compute
            ahead.start(clean_environment())
    print("\n== all parts")
    print("\n".join(lines))
    for skip in total.skipped:
        print(f"skipped: {skip}")
    for failure in total.failed:
        print(f"FAILED: {failure}")
    print(total, flush=True)
    return 1 if total.failed else 0


def processor_seconds() -> float:
    """What all processes took that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
