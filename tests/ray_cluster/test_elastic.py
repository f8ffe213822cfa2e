"""Elastic jobs: hosts come, go and die; the training goes on with each sample once."""

from __future__ import annotations

import pathlib

import pytest

from spark.session import Driver

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


def test_hosts_come_and_go(cluster: Driver, tmp_path: pathlib.Path) -> None:
    found = cluster.good("elastic_hosts", limit=120, stop=str(tmp_path / "stop"))
    assert found == {"ranks": [[0, 1]], "each_once": True, "sizes": [1, 3, 1]}


@pytest.mark.nightly
def test_a_node_dies(cluster: Driver, tmp_path: pathlib.Path) -> None:
    found = cluster.good("elastic_node_dies", limit=120, stop=str(tmp_path / "stop"))
    assert found["ranks"] == [[0, 2], [1, 2]] and found["each_once"]
    assert found["sizes"] in ([2, 4, 2], [4, 2])
