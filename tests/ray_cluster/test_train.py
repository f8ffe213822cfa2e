"""Ray Train over hvd's process group; Ray starts its workers again after a failure."""

from __future__ import annotations

import pathlib

import pytest

from spark.session import Driver

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


def test_workers_are_the_ranks_also_when_ray_starts_them_again(cluster: Driver, tmp_path: pathlib.Path) -> None:
    found = cluster.good("ray_train", limit=200, folder=str(tmp_path))
    assert found == {"total": 4.0, "backend": "hvd", "ranks": [0], "again": True}
