"""Causes of failure planted in a rank: hvdrun names the right rank and cause, and reports nothing for healthy jobs."""

from __future__ import annotations

import os

import pytest

from campaigns import causes, engine


def judged(package: str, *words: str) -> None:
    """At least 98 % of the jobs must be judged right."""
    outcomes = engine.run(causes.CAMPAIGN, "--package", package, *words)
    print(engine.table(outcomes))
    assert engine.share_right(outcomes) >= 0.98, "\n\n".join(map(str, engine.wrong(outcomes)))


def test_causes(package: str) -> None:
    """One seed of each (HVD_TEST_SEED: another), without causes that resemble others."""
    judged(package, "--short", "--seeds", "1", "--first", os.environ.get("HVD_TEST_SEED", "0"), "--side", "3")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_98_of_100_are_right(package: str) -> None:
    """All causes, five seeds: the right rank and the right cause."""
    judged(package, "--seeds", "5")


@pytest.mark.parametrize("seed", range(2))
def test_healthy(seed: int, package: str) -> None:
    """Slow ranks, caught exceptions, children, signals: hvdrun prints nothing."""
    assert causes.healthy(seed, package) == ""


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_200_healthy_runs(package: str) -> None:
    """Many healthy jobs."""
    outcomes = engine.run(causes.CAMPAIGN, "--seeds", "0", "--healthy", "200", "--package", package)
    assert len(outcomes) == 200 and not engine.wrong(outcomes), list(map(str, engine.wrong(outcomes)))
