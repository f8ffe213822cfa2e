"""Causes of failure planted in a rank: hvdrun names the right rank and the right cause; and it says nothing of healthy jobs."""

from __future__ import annotations

import os

import pytest

from failures import planted

LONG_SEEDS = range(5)


def judged(package: str, causes: list[str], seeds: range, at_once: int) -> None:
    """At least 98 % of the jobs told right."""
    table = planted.campaign(causes, seeds, package, at_once)
    print(planted.table_text(table))
    right, wrong = sum(row.right for row in table.values()), [text for row in table.values() for text in row.wrong]
    assert right
    assert right >= 0.98 * (right + len(wrong)), "\n\n".join(wrong)


def test_causes(package: str) -> None:
    """One seed of each (HVD_TEST_SEED: another), less those that are much like others."""
    causes = [cause for cause, case in planted.CASES.items() if not case.alike]
    seed = int(os.environ.get("HVD_TEST_SEED", "0"))
    judged(package, causes, range(seed, seed + 1), 3)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_98_of_100_are_right(package: str) -> None:
    """All causes, five seeds: the right rank and the right cause."""
    judged(package, list(planted.CASES), LONG_SEEDS, 1)


@pytest.mark.parametrize("seed", range(2))
def test_healthy(seed: int, package: str) -> None:
    """Slow ranks, caught exceptions, children, signals: no word of hvdrun."""
    assert planted.healthy(seed, package) == ""


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_200_healthy_runs(package: str) -> None:
    """The same, often."""
    false = {seed: said for seed in range(200) if (said := planted.healthy(seed, package))}
    assert not false
