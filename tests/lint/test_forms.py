"""Forms of tests: attempts of a test that measures."""

from __future__ import annotations

import pytest

from support.forms import measured


@pytest.mark.parametrize("failures", [0, 2, 3])
def test_a_measurement_has_three_attempts(failures: int) -> None:
    attempts: list[int] = []

    @measured
    def test(limit: int) -> None:
        attempts.append(limit)
        assert len(attempts) > failures, "too slow"

    if failures == 3:
        with pytest.raises(AssertionError, match="too slow"):
            test(7)
    else:
        test(limit=7)
    assert attempts == [7] * min(failures + 1, 3)
