"""Results of the parts: printed part by part, summed up at the end."""

from __future__ import annotations

import json
import pathlib
import threading
import time
from dataclasses import dataclass

import records
from context import LOGS, Context, Form, Part
from live import Live
from tally import Cost, Failure, Tally

MOST_AGAIN = 6  # failures that run again
MOST_SLOWEST = 40
SHOWN_SKIPS = 3  # names listed with a reason
QUARANTINE = pathlib.Path("scripts/quarantine.txt")
PUSH_RESULT = LOGS / "push.json"  # results of scripts/test, for --rest


def quarantined() -> dict[str, str]:
    """Tests that may fail, each with the reason.  Raises ValueError for a line without one."""
    found = {}
    for line in QUARANTINE.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, mark, why = line.partition("  # ")
            if not mark or not why.strip():
                raise ValueError(f"{QUARANTINE}: {name.strip()} has no reason: write NAME, two spaces, # and the reason")
            found[name.strip()] = why.strip()
    return found


@dataclass
class Row:
    """A finished part."""

    name: str
    wall: float
    processor: float
    tally: Tally

    def __str__(self) -> str:
        return f"{self.name:10} {self.wall:6.1f} s {self.processor:6.1f} s of processor  {self.tally}"


class Report:
    """Runs parts and keeps their results.  Threads: any."""

    def __init__(self, form: Form, parts: int, env: dict[str, str]) -> None:
        self.lock = threading.Lock()
        self.live = Live(parts)
        self._form, self._env = form, env
        self._rows: list[Row] = []
        self._total = Tally()

    def run(self, part: Part) -> None:
        """Runs a part and prints its result."""
        start = time.monotonic()
        context = Context(part, self._env, self._form)
        self.live.begin(context)
        try:
            tally = part.run(context)
        except Exception as error:  # a part that breaks is a failed test, and the others still run
            tally = Tally(failed=[Failure(part.name, f"{type(error).__name__}: {error}")])
        self.live.end(context)
        row = Row(part.name, time.monotonic() - start, context.processor_seconds, tally)
        with self.lock:
            for line in [*context.lines, *(f"   FAILED {failure}" for failure in tally.failed)]:
                print(line, flush=True)
            self.live.say(f"  {row}")
            self._rows.append(row)
            self._total += tally
        records.write(part.name, self._form, tally, row.wall, row.processor)

    def try_again(self) -> None:
        """Runs each failed test again, alone. The test counts as failed in any case. The report says whether it passes
        alone."""
        failed = self._total.failed
        if len(failed) > MOST_AGAIN:  # too many for chance
            return
        for failure in failed:
            if failure.run_alone is not None:
                self.live.say(f"again, alone: {failure.name}")
                passes = failure.run_alone()
                failure.why += " (passes alone: flaky, or disturbed by what ran beside it)" if passes else " (fails alone too)"

    def end(self, processor_seconds: float, slowest: bool, add_push: bool, keep: bool) -> int:
        """Prints the sum; returns the exit code.  keep: for a later run with add_push."""
        total = self._total
        allowed = quarantined()
        kept = [failure for failure in total.failed if failure.name in allowed]
        total.failed = [failure for failure in total.failed if failure.name not in allowed]
        print(f"\n== all parts: {self.live.seconds():.0f} s, {processor_seconds:.0f} s of processor")
        print("\n".join(map(str, self._rows)))
        if slowest:
            print("\n".join(slowest_lines(self._rows)))
        for line in skip_lines(total.skipped):
            print(line)
        for failure in kept:
            print(f"quarantined, fails: {failure} [{allowed[failure.name]}]")
        for failure in total.failed:
            print(f"FAILED: {failure}")
        if keep:
            PUSH_RESULT.write_text(json.dumps([total.passed, list(map(str, total.failed)), total.skipped]))
        if add_push and PUSH_RESULT.exists():
            print(f"here: {total}; with what scripts/test found:")
            passed, failed, skipped = json.loads(PUSH_RESULT.read_text())
            total += Tally(passed, [Failure("scripts/test", text) for text in failed], skipped)
        print(total, flush=True)
        return 1 if total.failed else 0

    def left(self) -> dict[str, int]:
        """The number of tests of each part that the form left out."""
        return {row.name: row.tally.left for row in self._rows if row.tally.left}


def skip_lines(skipped: list[tuple[str, str]]) -> list[str]:
    """A line for each reason."""
    reasons: dict[str, list[str]] = {}
    for name, why in skipped:
        reasons.setdefault(why, []).append(name)
    lines = []
    for why, names in reasons.items():
        more = f" and {len(names) - SHOWN_SKIPS} more" if len(names) > SHOWN_SKIPS else ""
        lines.append(f"skipped: {', '.join(names[:SHOWN_SKIPS])}{more}: {why}")
    return lines


def slowest_lines(rows: list[Row]) -> list[str]:
    """The most expensive parts and tests, by processor seconds."""
    lines = ["", "processor s   wall s  part"]
    lines += [f"{row.processor:11.1f} {row.wall:8.1f}  {row.name}" for row in sorted(rows, key=lambda row: -row.processor)]
    costs = [cost for row in rows for cost in row.tally.costs]
    lines += ["", f"processor s   wall s  test (the {MOST_SLOWEST} that cost most; -: its tool does not tell)"]
    for cost in sorted(costs, key=weight, reverse=True)[:MOST_SLOWEST]:
        own = f"{cost.processor:11.1f}" if cost.processor is not None else f"{'-':>11}"
        lines.append(f"{own} {cost.wall:8.1f}  {cost.name}")
    return [*lines, ""]


def weight(cost: Cost) -> float:
    """The sort key of a test."""
    return float(cost.wall if cost.processor is None else cost.processor)
