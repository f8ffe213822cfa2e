"""Fixtures: one driver on this machine, and Spark standalone on three hosts; a skip with its reason where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from netns.cluster import Cluster

from . import session as s


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s.Driver]:
    """A driver with two executors of one core on this machine."""
    if reason := s.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("spark")
    driver = s.local_cluster(folder)
    yield driver
    driver.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def standalone(three_hosts: Cluster) -> Iterator[s.Standalone]:
    """Master on alpha, a worker with two cores on each host."""
    if reason := s.why_not():
        pytest.skip(reason)
    made = s.Standalone(three_hosts)
    yield made
    made.close()
