"""Elastic jobs with many seeded faults each end as one without (tests/campaigns/run faults repeats a seed that fails)."""

from __future__ import annotations

import os

import numpy as np
import pytest

from campaigns import engine, fault_kinds, fault_training, faults
from netns.cluster import why_not
from support.forms import few

SEED = int(os.environ.get("HVD_TEST_SEED", "0"))


def all_end_well(first: int, number: int, *words: str) -> None:
    """Runs jobs with `number` faults, from seed `first` on, and checks their ends.  The log gets the table of outcomes."""
    outcomes = engine.run(faults.CAMPAIGN, "--first", str(first), "--faults", str(number), *words)
    print(engine.table(outcomes))
    assert not engine.wrong(outcomes), "\n".join(map(str, outcomes))
    assert sum(outcome.faults for outcome in outcomes) >= number


def test_the_course_does_not_depend_on_who_computes_it() -> None:
    """Losses and weights are equal for any assignment of shares to ranks; each sample is used once an epoch."""
    course = fault_training.course_of(16, 3)
    assert course.seen == [2] * fault_training.SAMPLES
    rows = [fault_training.row(course.weights, 16, share, 3) for share in range(3)]
    with pytest.raises(AssertionError):
        fault_training.advance(course, np.stack([rows[0], rows[2], rows[1]]), 3)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", few([30, 100]))
def test_many_faults(number: int) -> None:
    all_end_well(SEED, number)


@pytest.mark.ci
@pytest.mark.timeout(300)
def test_faults_over_three_hosts() -> None:
    if reason := why_not():
        pytest.skip(reason)
    all_end_well(SEED, 15, "--hosts")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "kind", few([*fault_kinds.NEED_HOSTS, "kill, then who has the state"], ["kill a host", "kill, then who has the state"])
)
def test_faults_of_hosts(kind: str) -> None:
    if reason := why_not():
        pytest.skip(reason)
    number = 1 if kind == "flapping cable" else 2 if " while " in kind else 4  # those take seconds
    all_end_well(SEED, number, "--hosts", "--kind", kind)


@pytest.mark.timeout(120)
def test_full_memory_at_commit() -> None:
    all_end_well(SEED, 3, "--kind", "full memory at commit")


@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_1000_faults() -> None:
    all_end_well(SEED + 1000, 800)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_200_faults_over_three_hosts() -> None:
    if reason := why_not():
        pytest.skip(reason)
    all_end_well(SEED + 2000, 200, "--hosts")
