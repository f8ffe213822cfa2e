"""Runs the parts of the test suite, and adds up: see scripts/test."""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from ahead import Ahead
from beside import Beside
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
    kept["HVD_TEST_OPENMPI5"] = f"{root}/.cache/openmpi5/bin/mpirun"  # the other Open MPI, beside the one in PATH
    kept["HVD_TEST_TENSORFLOW"] = f"{root}/.cache/tensorflow/bin/python"
    kept["HVD_TEST_MXNET"] = f"{root}/.cache/classic/bin/python"
    kept["HVD_TEST_PETASTORM"] = f"{root}/.cache/classic/bin/python"
    kept["HVD_TEST_SPARK"] = f"{root}/.cache/spark/bin/python"
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


class Results:
    """Of the parts, in the table's order."""

    def __init__(self, nightly: bool) -> None:
        self._nightly = nightly
        self._lines: dict[str, str] = {}
        self._tallies: dict[str, Tally] = {}

    def run(self, part: Part, say: Callable[[str], None]) -> None:
        """One part, to its end."""
        say(f"== {part.name}: {part.what}")
        start = time.monotonic()
        try:
            tally = part.run(Context(part, clean_environment(), self._nightly, say))
        except Exception as error:  # a part that breaks is a failed test, and the others still run
            tally = Tally(failed=[f"{part.name}: {type(error).__name__}: {error}"])
        line = f"{part.name:10} {time.monotonic() - start:6.1f} s  {tally}"
        say("\n".join([*(f"   FAILED {failure}" for failure in tally.failed), f"   {line}"]))
        self._lines[part.name], self._tallies[part.name] = line, tally

    def told(self, chosen: list[Part]) -> int:
        """Adds up; the exit code."""
        total = Tally()
        print("\n== all parts")
        for part in chosen:
            print(self._lines[part.name])
            total += self._tallies[part.name]
        for skip in total.skipped:
            print(f"skipped: {skip}")
        for failure in total.failed:
            print(f"FAILED: {failure}")
        print(total, flush=True)
        return 1 if total.failed else 0


def run(chosen: list[Part], nightly: bool, ahead: Ahead) -> int:
    """In order, but for what waits: that runs beside the others that need not be alone.  Not by night, which measures."""
    results = Results(nightly)
    others = any(not part.alone and not part.waits for part in chosen)
    beside = Beside([part for part in chosen if part.waits and others and not nightly], results.run)
    built_ahead = {"asan", "tsan"} & {part.name for part in chosen}
    try:
        for part in [part for part in chosen if part not in beside.parts]:
            if not part.alone:
                beside.start()
            elif part.name in built_ahead:
                beside.finish()
                ahead.end()
            results.run(part, lambda text: print(text, flush=True))
            if part.name == "unit" and built_ahead:  # from here on there is time to compute
                ahead.start(clean_environment())
        beside.finish()
    finally:
        beside.end()
    return results.told(chosen)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
