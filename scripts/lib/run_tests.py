"""Runs the parts of the test suite, and adds up: see scripts/test."""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from context import Context, Order, Part, kill_all
from parts import PARTS
from tally import Tally

MOST_AGAIN = 6  # failures that are run once more


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

    try:
        return run(chosen, arguments.nightly)
    finally:
        kill_all()


def run(chosen: list[Part], nightly: bool) -> int:
    """Runs the parts, adds up, and returns the exit code.

    Those that come first run alone.  The others run in two lanes: one takes what waits, the other what computes, and the
    one that has nothing left of its kind helps the other.
    """
    begin = time.monotonic()
    report = Report(nightly)
    for part in chosen:
        if part.order is Order.first:
            report.run(part)
    left = [part for part in chosen if part.order is not Order.first]
    lanes = [
        threading.Thread(target=run_lane, args=(left, kind, report), daemon=True) for kind in (Order.waiting, Order.computing)
    ]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    report.try_again()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return report.end(time.monotonic() - begin, usage.ru_utime + usage.ru_stime)


def run_lane(left: list[Part], kind: Order, report: Report) -> None:
    """Takes parts until there are none."""
    while left:
        with report.lock:
            if not left:
                return
            part = next((part for part in left if part.order is kind), left[0])
            left.remove(part)
        report.run(part)


class Report:
    """What the parts found, printed part by part.  Threads: any."""

    def __init__(self, nightly: bool) -> None:
        self.lock = threading.Lock()
        self._nightly = nightly
        self._total = Tally()
        self._lines: list[str] = []
        self._unsteady: list[str] = []

    def run(self, part: Part) -> None:
        """Runs a part and prints its result."""
        print(f"== {part.name}: {part.what}", flush=True)
        start = time.monotonic()
        context = Context(part, clean_environment(), self._nightly)
        try:
            tally = part.run(context)
        except Exception as error:  # a part that breaks is a failed test, and the others still run
            tally = Tally(failed=[f"{part.name}: {type(error).__name__}: {error}"])
        line = f"{part.name:10} {time.monotonic() - start:6.1f} s {context.processor_seconds:6.1f} s of processor  {tally}"
        with self.lock:
            shown = [*context.lines, *(f"   FAILED {failure}" for failure in tally.failed), f"   {line}"]
            print("\n".join(shown), flush=True)
            self._lines.append(line)
            self._total += tally

    def try_again(self) -> None:
        """Runs what failed once more, alone: on a busy machine a test may fail that says nothing about the change.

        It is named all the same, and at night it counts as failed.  More than a few are no accident, and are not run.
        """
        failed = self._total.failed
        if self._nightly or not 0 < len(failed) <= MOST_AGAIN:
            return
        for failure in failed.copy():
            again = self._total.again.get(failure)
            if again is None:
                continue
            print(f"== again, alone: {failure}", flush=True)
            if again():
                failed.remove(failure)
                self._unsteady.append(failure)
                self._total.passed += 1

    def end(self, seconds: float, processor_seconds: float) -> int:
        """Prints the sum; the exit code."""
        total = self._total
        print(f"\n== all parts: {seconds:.0f} s, {processor_seconds:.0f} s of processor")
        print("\n".join(self._lines))
        for skip in total.skipped:
            print(f"skipped: {skip}")
        for failure in self._unsteady:
            print(f"unsteady, failed and then passed alone: {failure}")
        for failure in total.failed:
            print(f"FAILED: {failure}")
        print(total, flush=True)
        return 1 if total.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
