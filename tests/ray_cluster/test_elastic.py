"""Elastic jobs: hosts come, go and die; the training goes on with each sample once."""

from __future__ import annotations

import pytest

from spark.session import Driver

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


def test_hosts_come_and_go(cluster: Driver) -> None:
    found = cluster.good("elastic_hosts", limit=200)
    assert found["seen"] == list(range(600))
    assert found["ranks"] == [[0, 1]]
    sizes = found["sizes"]
    assert sizes[0] == 1 and max(sizes) == 3 and sizes[-1] == 1


def test_a_node_dies(cluster: Driver) -> None:
    found = cluster.good("elastic_node_dies", limit=200)
    assert found["seen"] == list(range(300))
    assert found["sizes"][0] in (2, 4) and max(found["sizes"]) == 4 and found["sizes"][-1] == 2
    assert found["ranks"] == 2
