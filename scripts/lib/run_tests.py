"""Runs the parts of the test suite, and sums up: see scripts/test."""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from context import Form, Order, Part, When, kill_all
from parts import LONGEST_REST, PARTS
from report import PUSH_RESULT, Report, quarantined

WHEN = {When.push: "", When.split: " (some tests in CI only)", When.ci: " (CI only)", When.night: " (by night only)"}

TWO_LANES = (Order.waiting, Order.computing)
# Hosts, Spark and failures use a quarter of a core each.  Each lane takes the longest part that is left.
LANES = {Form.rest: (None, None, None)}


def clean_environment() -> dict[str, str]:
    """This environment with .venv first in PATH, without the variables of a surrounding job."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HVD_", "HOROVOD_", "OMPI_", "PMIX_", "SLURM_", "PYTHON")) and name != "VIRTUAL_ENV"
    }
    root = pathlib.Path.cwd()
    kept["PATH"] = f"{root}/.venv/bin:{kept['PATH']}"
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept


def arguments_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/test")
    parser.add_argument("parts", nargs="*", metavar="PART", help="these parts, with the tests that are CI's")
    parser.add_argument("--rest", action="store_true", help="what CI runs besides")
    parser.add_argument("--sum", action="store_true", help="with --rest: add what scripts/test found before")
    parser.add_argument("--nightly", action="store_true", help="the long form")
    parser.add_argument("--push", action="store_true", help="of the named parts what must pass before a push")
    parser.add_argument("--spark", action="store_true", help="the part spark in its long form")
    parser.add_argument("--slowest", action="store_true", help="show processor seconds by part and by test")
    parser.add_argument("--list", action="store_true", help="the parts")
    return parser.parse_args()


def main() -> int:
    """See the file's comment; the exit code is the suite's."""
    arguments = arguments_of()
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    if arguments.spark:
        arguments.parts, arguments.nightly = [*arguments.parts, "spark"], True
    if arguments.list:
        for part in PARTS:
            print(f"{part.name:10} {part.what}{WHEN[part.when]}")
        return 0
    unknown = set(arguments.parts) - {part.name for part in PARTS}
    if unknown:
        print(f"scripts/test: no part {', '.join(sorted(unknown))} (scripts/test --list)", file=sys.stderr)
        return 2
    quarantined()  # an unreadable line ends the run before the first part
    form = form_of(arguments)
    chosen = [part for part in PARTS if (part.name in arguments.parts if arguments.parts else form.has(part))]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if is_push(form, arguments):
        PUSH_RESULT.unlink(missing_ok=True)
    try:
        return run(chosen, form, arguments)
    finally:
        kill_all()


def form_of(arguments: argparse.Namespace) -> Form:
    """The form for named parts is the daily one, unless an option selects another."""
    if arguments.nightly:
        return Form.night
    if arguments.rest:
        return Form.rest
    return Form.day if arguments.parts and not arguments.push else Form.push


def run(chosen: list[Part], form: Form, arguments: argparse.Namespace) -> int:
    """Runs the parts, sums up, and returns the exit code.

    Parts of the first kind run alone.  The others run in lanes.  A lane may have a kind, parts that wait or parts that
    compute.  When no such part is left, it helps the other lanes.
    """
    report = Report(form, len(chosen), clean_environment())
    for part in chosen:
        if part.order is Order.first:
            report.run(part)
    left = [part for part in chosen if part.order is not Order.first]
    if form is Form.rest:
        left.sort(key=lambda part: LONGEST_REST.index(part.name) if part.name in LONGEST_REST else len(LONGEST_REST))
    lanes = [threading.Thread(target=run_lane, args=(left, kind, report), daemon=True) for kind in LANES.get(form, TWO_LANES)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    report.try_again()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    if is_push(form, arguments):
        say_what_is_left(report)
    seconds = usage.ru_utime + usage.ru_stime
    return int(report.end(seconds, arguments.slowest, add_push=arguments.sum, keep=is_push(form, arguments)))


def is_push(form: Form, arguments: argparse.Namespace) -> bool:
    """Returns whether this run has all parts that must pass before a push."""
    return form is Form.push and not arguments.parts


def say_what_is_left(report: Report) -> None:
    """One line on the parts and tests that only CI runs."""
    parts = [part.name for part in PARTS if part.when is When.ci]
    tests = [f"{count} tests of {name}" for name, count in report.left().items()]
    print(f"\nleft to CI, too long before a push (scripts/test --rest runs them): {', '.join([*parts, *tests])}")


def run_lane(left: list[Part], kind: Order | None, report: Report) -> None:
    """Takes parts until there are none, of its kind first."""
    while left:
        with report.lock:
            if not left:
                return
            part = next((part for part in left if part.order is kind), left[0])
            left.remove(part)
        report.run(part)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
