"""One cluster of two nodes for all tests. Without Ray the tests are skipped, with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark.session import Driver

from . import session as s


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver with two nodes of two CPUs on this machine."""
    if reason := s.why_not():
        pytest.skip(reason)
    made = s.driver(tmp_path_factory.mktemp("ray"))
    yield made
    made.close()
