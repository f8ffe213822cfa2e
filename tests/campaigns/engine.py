"""One engine for all campaigns: it starts jobs, each with a planted fault, judges the outcomes, and counts them.

    tests/campaigns/run NAME [OPTION …]

A campaign is a table of cases and a function that runs one trial: a job with one case, drawn from a seed.  The function
returns outcomes, which are the rows of the printed table.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import statistics
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CASE_WIDTH = 50


class Trial(NamedTuple):
    """One job: its planted case, and the seed of all random draws."""

    case: str
    seed: int


@dataclass
class Outcome:
    """The result of one trial, or of one fault of a trial with several."""

    case: str
    seed: int
    right: bool
    about: str = ""  # messages or remains; for a right outcome: a remark
    skipped: str = ""  # reason why this machine cannot host the case
    figures: dict[str, float] = field(default_factory=dict)  # column → value
    faults: int = 1

    def __str__(self) -> str:
        word = "left out" if self.skipped else "right" if self.right else "WRONG"
        figures = " ".join(f"{name} {value:.3f}" for name, value in self.figures.items())
        return f"{word:8} {self.case:{CASE_WIDTH}} seed {self.seed:4}  {figures} {self.skipped or self.about}".rstrip()


@dataclass
class Campaign:
    """A table of cases with its judge."""

    about: str
    trials: Callable[[argparse.Namespace], list[Trial]]
    judge: Callable[[Trial, Any, argparse.Namespace], list[Outcome]]
    add_options: Callable[[argparse.ArgumentParser], None]
    # The context of trials that do not run in parallel; each of them enters it once.
    place: Callable[[argparse.Namespace], contextlib.AbstractContextManager[Any]] = lambda _: contextlib.nullcontext()
    why_not: Callable[[argparse.Namespace], str] = lambda _: ""  # a reason why nothing runs here
    side: int = 1  # number of parallel trials


def options_of(campaign: Campaign, words: Iterable[str], prog: str = "") -> argparse.Namespace:
    """The command line of a campaign."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=prog or None, description=campaign.about, formatter_class=formatter)
    campaign.add_options(parser)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--side", type=int, default=campaign.side, help="trials side by side")
    package = os.environ.get("PYTHONPATH", "")
    parser.add_argument("--package", default=package, help="folder of the package hvd, if not installed")
    return parser.parse_args(list(words))


def run(campaign: Campaign, *words: str, say: bool = False) -> list[Outcome]:
    """All outcomes, in the order of the trials.  say: prints each at once."""
    return run_with(campaign, options_of(campaign, words), say)


def run_with(campaign: Campaign, options: argparse.Namespace, say: bool) -> list[Outcome]:
    """Like run(), for parsed options."""
    trials = campaign.trials(options)
    found: list[list[Outcome]] = [[] for _ in trials]
    left, lock = iter(range(len(trials))), threading.Lock()

    def lane() -> None:
        with campaign.place(options) as place:
            while True:
                with lock:
                    number = next(left, None)
                if number is None:
                    return
                found[number] = campaign.judge(trials[number], place, options)
                if say:
                    print("\n".join(map(str, found[number])), flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.side) as pool:
        for done in [pool.submit(lane) for _ in range(min(options.side, len(trials)))]:
            done.result()
    return [outcome for outcomes in found for outcome in outcomes]


def wrong(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The wrong outcomes."""
    return [outcome for outcome in outcomes if not outcome.right and not outcome.skipped]


def share_right(outcomes: Iterable[Outcome]) -> float:
    """The share of right outcomes among those that ran, from 0 to 1; 0 if none ran."""
    ran = [outcome.right for outcome in outcomes if not outcome.skipped]
    return sum(ran) / len(ran) if ran else 0.0


def table(outcomes: list[Outcome]) -> str:
    """A line for each case: its numbers of right, wrong and skipped trials; the median and maximum of each figure."""
    columns = list(dict.fromkeys(name for outcome in outcomes for name in outcome.figures))
    head = "".join(f"  {name + ': median, most':>24}" for name in columns)
    lines = [f"{'case':{CASE_WIDTH}} right wrong{head}"]
    for case in dict.fromkeys(outcome.case for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.case == case]
        right, bad = sum(outcome.right and not outcome.skipped for outcome in mine), len(wrong(mine))
        cells = "".join(f"  {middle_and_most(mine, name):>24}" for name in columns)
        skipped = next((f"  left out: {outcome.skipped}" for outcome in mine if outcome.skipped), "")
        lines.append(f"{case:{CASE_WIDTH}} {right:5} {bad:5}{cells}{skipped}")
    total = len([outcome for outcome in outcomes if not outcome.skipped])
    lines.append(f"{total - len(wrong(outcomes))} of {total} right: {100 * share_right(outcomes):.1f} %")
    return "\n".join(lines)


def middle_and_most(outcomes: list[Outcome], name: str) -> str:
    """The median and maximum of one figure; "-" if no outcome has it."""
    values = [outcome.figures[name] for outcome in outcomes if name in outcome.figures]
    return f"{statistics.median(values):.3f} {max(values):.3f}" if values else "-"


def main(campaigns: dict[str, Campaign], arguments: list[str]) -> int:
    """The program tests/campaigns/run; returns 1 if an outcome was wrong."""
    if not arguments or arguments[0] not in campaigns:
        print(f"usage: tests/campaigns/run NAME [OPTION …]; NAME is one of {', '.join(campaigns)}", file=sys.stderr)
        return 2
    campaign = campaigns[arguments[0]]
    options = options_of(campaign, arguments[1:], f"tests/campaigns/run {arguments[0]}")
    if reason := campaign.why_not(options):
        print(reason)
        return 0
    outcomes = run_with(campaign, options, say=True)
    print("\n" + table(outcomes))
    return 1 if wrong(outcomes) else 0
