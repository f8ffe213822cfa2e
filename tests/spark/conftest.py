"""Fixtures: one driver on this machine, and Spark standalone on three hosts; without Spark, a skip with its reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from netns.cluster import Cluster
from netns.fixtures import make

from . import session as s


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s.Driver]:
    """A driver with two executors of one core on this machine."""
    if reason := s.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("spark")
    driver = s.local_cluster(folder)
    driver.good("executors_are_there", count=2)
    yield driver
    driver.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def three_hosts() -> Iterator[Cluster]:
    """Hosts alpha, beta and gamma, for all of this suite: starting Spark on them takes longer than any test."""
    yield from make(3)


@pytest.fixture(scope="session")
def standalone(three_hosts: Cluster) -> Iterator[s.Standalone]:
    """Master on alpha, a worker with two cores on each host."""
    if reason := s.why_not():
        pytest.skip(reason)
    made = s.Standalone(three_hosts)
    yield made
    made.close()


@pytest.fixture(scope="session")
def sessions(standalone: s.Standalone) -> Iterator[list[s.Driver]]:
    """The current session, on all six cores; a test may have ended it."""
    held: list[s.Driver] = []
    yield held
    for driver in held:
        driver.close()


@pytest.fixture
def driver(standalone: s.Standalone, sessions: list[s.Driver]) -> s.Driver:
    """A session on all six cores."""
    if not sessions or sessions[-1].process.poll() is not None:
        sessions[:] = [standalone.driver()]
    sessions[-1].good("executors_are_there", count=3)  # an earlier test may have killed one, which Spark replaces
    return sessions[-1]
