"""pytest fixtures over cluster.py: two_hosts and three_hosts, one cluster a module; else a skip, with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import cluster as c


def make(hosts: int) -> Iterator[c.Cluster]:
    """A cluster, or a skip."""
    if reason := c.why_not():
        pytest.skip(reason)
    c.sweep()
    with c.Cluster(hosts=hosts) as made:
        yield made


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[c.Cluster]:
    """Hosts alpha and beta."""
    yield from make(2)


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[c.Cluster]:
    """Hosts alpha, beta and gamma."""
    yield from make(3)
