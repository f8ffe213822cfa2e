"""RayExecutor: ranks on two nodes, calls, output, a failure's verdict."""

from __future__ import annotations

import pytest

from spark.session import Driver

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


def test_ranks_and_output(cluster: Driver) -> None:
    answer = cluster.ask("ranks_and_output")
    assert "value" in answer, answer
    found = answer["value"]
    assert [(one["rank"], one["hosts"], one["sum"]) for one in found["ran"]] == [(0, 2, 20.0), (1, 2, 20.0)]
    assert found["same"], "a later call ran in other processes"
    assert (found["single"], found["logged"], found["nodes"]) == ("5", [0, 1], 2)
    assert found["told"] == [["0", None], ["1", "1"]]
    for rank in (0, 1):
        assert [line for line in answer["out"].splitlines() if f"rank {rank} works" in line and f"[{rank} ray-" in line]


def test_executable(cluster: Driver) -> None:
    assert cluster.good("executable") == [[7, 7], [9, 9]]


def test_failing_rank(cluster: Driver) -> None:
    answer = cluster.ask("failing_rank")
    assert "value" in answer, answer
    found = answer["value"]
    for error in found["errors"]:  # the second call tells the same
        assert error.startswith("JobError: rank 1 on ray-"), error
        assert "KeyError: 'of rank 1'" in error
    assert found["again"] == [3, 3]
    assert "hvdrun: rank 1 on ray-" in answer["err"]


def test_no_room(cluster: Driver) -> None:
    error = cluster.good("no_room")
    assert "no room for 1 × {'CPU': 9}" in error and "placement_group_timeout_s" in error
