"""A training with a known course: fault_rank.py computes it in shares, and faults.py alone.

The global batch has a share for each rank of the first world, of PART samples each.  Sums are made in the order of the
shares, so losses and weights do not depend on the rank that computes a share.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

SAMPLES, PART, WEIGHTS = 48, 2, 32
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass
class Course:
    """The progress of a training."""

    step: int
    weights: Floats
    losses: list[str]
    seen: list[int]  # number of uses of each sample


def begin() -> Course:
    """The state before the first step."""
    return Course(0, np.linspace(-1, 1, WEIGHTS), [], [0] * SAMPLES)


def samples_of(step: int, share: int, shares: int) -> list[int]:
    """The samples of a share in that step."""
    steps = SAMPLES // (shares * PART)
    order = np.random.default_rng(step // steps).permutation(SAMPLES)
    at = (step % steps * shares + share) * PART
    return [int(sample) for sample in order[at : at + PART]]


def micro_batch(weights: Floats, samples: list[int]) -> tuple[float, Floats]:
    """Loss and gradient of a share."""
    gradient, loss = np.zeros(WEIGHTS), 0.0
    for sample in samples:
        waves = np.sin(weights * (sample + 1) + np.arange(WEIGHTS))
        gradient += waves / 3
        loss += float((waves * weights).sum()) / 7  # without BLAS, which differs between environments
    return loss, gradient


def row(weights: Floats, step: int, share: int, shares: int) -> Floats:
    """A rank's result for a share: [share, samples …, loss, gradient …]."""
    samples = samples_of(step, share, shares)
    loss, gradient = micro_batch(weights, samples)
    return np.concatenate([[share], samples, [loss], gradient])


def advance(course: Course, rows: Floats, shares: int) -> Course:
    """The course after a step; rows: [shares, …] in order.  AssertionError if a share is missing or occurs twice."""
    assert rows[:, 0].tolist() == list(range(shares)), rows[:, 0]
    loss, total, seen = 0.0, np.zeros(WEIGHTS), list(course.seen)
    for one in rows:
        loss += float(one[1 + PART])
        total += one[2 + PART :]
        for sample in one[1 : 1 + PART]:
            seen[int(sample)] += 1
    return Course(course.step + 1, course.weights - 0.01 * total, [*course.losses, loss.hex()], seen)


def summary(course: Course) -> dict[str, Any]:
    """The final state, for comparison."""
    weights = hashlib.sha256(course.weights.tobytes()).hexdigest()
    return {"step": course.step, "weights": weights, "losses": course.losses, "seen": course.seen}


def course_of(steps: int, shares: int) -> Course:
    """The course computed by one process, without faults."""
    course = begin()
    for step in range(steps):
        rows = [row(course.weights, step, share, shares) for share in range(shares)]
        course = advance(course, np.stack(rows), shares)
    return course
