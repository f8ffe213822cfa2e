"""Which hosts hvd.network measures, and which it calls slow."""

from __future__ import annotations

import pathlib

import pytest

network = pytest.importorskip("hvd.network", reason="needs numpy")


def figures(rates: dict[str, float], late: dict[str, float] | None = None) -> list[network.PairFigures]:
    """Each pair's least and median time differ: the least is what counts."""
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


def test_figures_replace_a_link_and_not_where_it_leads(tmp_path: pathlib.Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "figures.json"
    precious.write_text("mine")
    link.symlink_to(precious)
    network.replace(link, "{}")
    assert (precious.read_text(), link.read_text(), link.is_symlink()) == ("mine", "{}", False)
    assert len(list(tmp_path.iterdir())) == 2
