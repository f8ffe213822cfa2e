"""The hosts that hvd.network measures, and those that it reports as slow."""

from __future__ import annotations

import pathlib

import pytest

network = pytest.importorskip("hvd.network", reason="needs numpy")


def figures(rates: dict[str, float], late: dict[str, float] | None = None) -> list[network.PairFigures]:
    """Each pair's least and median time differ: the least counts."""
    return [network.PairFigures((pair[0], pair[1]), (late or {}).get(pair, 20.0), 300.0, rate) for pair, rate in rates.items()]


def test_pairs() -> None:
    assert network.pairs_of(2) == [(0, 1)]
    assert len(network.pairs_of(8)) == 28
    for hosts in (9, 10, 64):
        pairs = network.pairs_of(hosts)
        assert len(set(pairs)) == len(pairs) <= 2 * hosts
        assert all(a < b for a, b in pairs)
        assert {host for pair in pairs for host in pair} == set(range(hosts))


@pytest.mark.parametrize(
    "rates, late, slow",
    [
        ({"ab": 9.0}, None, []),
        ({"ab": 9.0, "ac": 9.1, "bc": 8.0}, None, []),
        ({"ab": 9.0, "ac": 0.9, "bc": 0.8}, {"ab": 90.0}, ["c: 0.85 Gbit/s, the others have 9.00"]),
        ({"ab": 9.0, "ac": 0.9, "bc": 0.8}, None, ["c: 0.85 Gbit/s, the others have 9.00"]),
        ({"ab": 1.0, "ac": 9.0, "bc": 9.0}, None, ["a - b: 1.00 Gbit/s, the others have 9.00"]),
        ({"ab": 9.0, "ac": 9.0, "bc": 9.0}, {"ac": 90.0, "bc": 80.0}, ["c: 85 us, the others have 20"]),
    ],
)
def test_slow_ones(rates: dict[str, float], late: dict[str, float] | None, slow: list[str]) -> None:
    assert network.slow_ones(figures(rates, late)) == slow


def test_slow_interfaces() -> None:
    """Each is compared with the others of its host, and reported once, with the pair in which it is slowest."""
    rates = {"a eth0": 9.0, "a eth1": 3.0, "b eth0": 9.0, "b eth1": 2.0}  # data for a slow interface is slow as well
    pairs = [network.PairFigures(("a", "b"), 20.0, 30.0, 9.0, rates)]
    assert network.slow_ones(pairs) == ["b eth1: 2.00 Gbit/s, another network interface of that host has 9.00"]
    pairs.append(network.PairFigures(("b", "c"), 20.0, 30.0, 9.0, {"b eth0": 8.0, "b eth1": 0.0, "c eth0": 4.0, "c eth1": 4.0}))
    assert network.slow_ones(pairs) == ["b eth1: 0.00 Gbit/s, another network interface of that host has 8.00"]


def test_rates_of_interfaces() -> None:
    """The rate between two samples; 0 for one without traffic, or with new connections."""
    before = {"eth0": (1000, 10), "eth1": (9000, 50), "eth2": (5, 5)}
    after = {"eth0": (5000, 20), "eth1": (100, 5), "eth2": (5, 5), "eth3": (80, 20)}
    assert network.interface_rates(before, after) == {"eth0": 3200.0, "eth1": 0.0, "eth2": 0.0, "eth3": 32.0}


def test_figures_replace_a_link_and_not_where_it_leads(tmp_path: pathlib.Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "figures.json"
    precious.write_text("mine")
    link.symlink_to(precious)
    network.replace(link, "{}")
    assert (precious.read_text(), link.read_text(), link.is_symlink()) == ("mine", "{}", False)
    assert len(list(tmp_path.iterdir())) == 2
