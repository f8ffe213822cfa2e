"""A training whose course is known beforehand: what fault_rank.py computes in shares, and faults.py alone.

The batch of all ranks has a share for each rank of the first world, of PART samples each; sums are made in the order of the
shares, so losses and weights do not depend on who computes which.
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
    """How far a training has come."""

    step: int
    weights: Floats
    losses: list[str]
    seen: list[int]  # how often each sample


def begin() -> Course:
    """Before the first step."""
    return Course(0, np.linspace(-1, 1, WEIGHTS), [], [0] * SAMPLES)


def samples_of(step: int, share: int, shares: int) -> list[int]:
    """Which samples are a share's in that step."""
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
        loss += float((waves * weights).sum()) / 7  # not of BLAS, which an environment may change
    return loss, gradient


def row(weights: Floats, step: int, share: int, shares: int) -> Floats:
    """What a rank tells of a share: [share, samples …, loss, gradient …]."""
    samples = samples_of(step, share, shares)
    loss, gradient = micro_batch(weights, samples)
    return np.concatenate([[share], samples, [loss], gradient])


def advance(course: Course, rows: Floats, shares: int) -> Course:
    """The course after a step; rows: [shares, …] in their order.  AssertionError where a share is missing, or comes twice."""
    assert rows[:, 0].tolist() == list(range(shares)), rows[:, 0]
    loss, total, seen = 0.0, np.zeros(WEIGHTS), list(course.seen)
    for one in rows:
        loss += float(one[1 + PART])
        total += one[2 + PART :]
        for sample in one[1 : 1 + PART]:
            seen[int(sample)] += 1
    return Course(course.step + 1, course.weights - 0.01 * total, [*course.losses, loss.hex()], seen)


def summary(course: Course) -> dict[str, Any]:
    """To be compared."""
    weights = hashlib.sha256(course.weights.tobytes()).hexdigest()
    return {"step": course.step, "weights": weights, "losses": course.losses, "seen": course.seen}


def course_of(steps: int, shares: int) -> Course:
    """As one process computes it, to which nothing happens."""
    course = begin()
    for step in range(steps):
        rows = [row(course.weights, step, share, shares) for share in range(shares)]
        course = advance(course, np.stack(rows), shares)
    return course
