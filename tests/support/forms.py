"""Forms of tests: cases that only .ci/run runs (pytest's marker ci), and tests that measure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], keep: int | Collection[Any] = 1) -> list[Any]:
    """The cases; those beyond the first `keep`, or with another name or value than in `keep`, are marked ci."""
    cases = []
    for number, value in enumerate(values):
        case = value if isinstance(value, type(pytest.param())) else as_case(value)
        kept = number < keep if isinstance(keep, int) else (case.id or case.values[0]) in keep
        cases.append(case if kept else pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.ci]))
    return cases


def as_case(value: Any) -> Any:
    """A value, or a tuple of values for several names."""
    return pytest.param(*value) if isinstance(value, tuple) else pytest.param(value)


def measured(test: Callable[..., None]) -> Callable[..., None]:
    """A test that compares measured times or rates: three attempts.

    A pause of one process on a shared machine spoils an attempt.  A fault of hvdrun spoils each.  Files of an earlier attempt
    must not matter to the test.
    """

    @functools.wraps(test)
    def attempts(*args: Any, **kwargs: Any) -> None:
        for _ in range(2):
            try:
                return test(*args, **kwargs)
            except AssertionError as error:
                print(f"measured again: {error}")
        return test(*args, **kwargs)

    return attempts
