"""Measures the network between the hosts of a job, as its tensors use it, and names slow hosts and links.

    hvdrun -np 3 -H node1:1,node2:1,node3:1 -m hvd.network [--json FILE] [--megabytes 16]

One rank of each host takes part.  All options of a job apply (--network-interfaces, --transport, …).  Pairs of hosts take turns
with two sums.  A sum of 4 bytes gives the round trip in microseconds.  A sum of --megabytes gives the rate of each direction in
Gbit/s, while both directions are in use.  If several network interfaces reach a host, the table has each interface's rate while
it sends.  The rates of interfaces come from the kernel's counters.  With more than 8 hosts, each is measured with four others.
Rank 0 prints a table; --json writes the figures to a file on its host.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import secrets
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import hvd.numpy as hvd
from hvd import _native
from hvd._job.run import write_private

MOST_HOSTS_IN_FULL = 8
SMALL_ROUNDS, LEAST_LARGE_ROUNDS = 200, 3
LARGE_SECONDS = 0.4
SLOW_RATE, SLOW_LATENCY = 0.5, 3.0  # times the others' median


@dataclass(frozen=True)
class PairFigures:
    """The figures of one pair of hosts: microseconds (least, median), Gbit/s each way (median).

    interfaces: Gbit/s that each network interface sends, by "host interface"; empty if only one reaches the other host.
    """

    hosts: tuple[str, str]
    least_us: float
    median_us: float
    gbit: float
    interfaces: dict[str, float] = field(default_factory=dict)


def pairs_of(hosts: int) -> list[tuple[int, int]]:
    """The pairs to measure: all, or with many hosts each with the next two and with two far away."""
    if hosts <= MOST_HOSTS_IN_FULL:
        return [(a, b) for a in range(hosts) for b in range(a + 1, hosts)]
    steps = (1, hosts // 2)
    return sorted({(min(a, (a + s) % hosts), max(a, (a + s) % hosts)) for a in range(hosts) for s in steps})


def slow_ones(figures: Sequence[PairFigures]) -> list[str]:
    """A sentence for each host whose pairs are slow, then for each slow pair.  A named host or pair does not count again."""
    lines: list[str] = []
    left = list(figures)

    def rate_of(pairs: Sequence[PairFigures]) -> float:
        return statistics.median(f.gbit for f in pairs)

    def latency_of(pairs: Sequence[PairFigures]) -> float:
        return statistics.median(f.least_us for f in pairs)

    def compare(who: str, mine: list[PairFigures], rates: bool) -> None:
        others = [f for f in left if f not in mine]
        if not mine or not others:
            return
        if rates and rate_of(mine) < SLOW_RATE * rate_of(others):
            lines.append(f"{who}: {rate_of(mine):.2f} Gbit/s, the others have {rate_of(others):.2f}")
        elif not rates and latency_of(mine) > SLOW_LATENCY * latency_of(others):
            lines.append(f"{who}: {latency_of(mine):.0f} us, the others have {latency_of(others):.0f}")
        else:
            return
        left[:] = others

    hosts = list(dict.fromkeys(host for pair in figures for host in pair.hosts))
    for rates in (True, False):
        for host in hosts if len(hosts) > 2 else ():
            compare(host, [f for f in left if host in f.hosts], rates)
        for pair in figures:
            if pair in left:
                compare(" - ".join(pair.hosts), [pair], rates)
    return lines + slow_interfaces(figures)


def slow_interfaces(figures: Sequence[PairFigures]) -> list[str]:
    """A sentence for each network interface that is much slower than the fastest of its host.

    Names only the slowest interface of a pair.  Acknowledgements wait for its data, so the interface at the other end is slow
    too.
    """
    slowest: dict[str, tuple[float, float]] = {}  # by interface: its rate, and the fastest one's
    for pair in figures:
        interface, rate = min(pair.interfaces.items(), key=lambda item: item[1], default=("", 0.0))
        best = max((other for name, other in pair.interfaces.items() if name.split()[0] == interface.split()[0]), default=0.0)
        if rate < SLOW_RATE * best and rate <= slowest.get(interface, (rate, best))[0]:
            slowest[interface] = rate, best
    return [
        f"{interface}: {rate:.2f} Gbit/s, another network interface of that host has {best:.2f}"
        for interface, (rate, best) in slowest.items()
    ]


def timed(rounds: Callable[[int, float], bool], work: Callable[[], Any]) -> list[float]:
    """Seconds of each turn of work, while rounds(turns, seconds so far) returns True."""
    times: list[float] = []
    start = time.perf_counter()
    while rounds(len(times), time.perf_counter() - start):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return times


def sent_by_interface(peer: int) -> dict[str, tuple[int, int]]:
    """Returns {network interface of this host: (bytes sent to that rank since init(), busy ns)}."""
    return {interface: (sent, busy) for rank, interface, sent, busy, _ in _native.links() if rank == peer and interface}


def interface_rates(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, float]:
    """Gbit/s by network interface; 0 for one that has sent nothing."""
    rates = {}
    for interface, (sent, busy) in after.items():
        sent_before, busy_before = before.get(interface, (0, 0))
        rates[interface] = (
            8.0 * (sent - sent_before) / (busy - busy_before) if sent > sent_before and busy > busy_before else 0.0
        )
    return rates


def measure(pair: hvd.ProcessSet, peer: int, first: bool, megabytes: int) -> tuple[float, float, float, dict[str, float]]:
    """Runs on both ranks of the pair: microseconds, least and median, Gbit/s, and Gbit/s of each network interface.

    first: on one of the two ranks.
    """
    small, large = np.zeros(1, np.float32), np.zeros(megabytes << 18, np.float32)

    def sum_small() -> None:
        hvd.allreduce_(small, name="network.small", op=hvd.Sum, process_set=pair)

    def sum_large() -> None:
        hvd.allreduce_(large, name="network.large", op=hvd.Sum, process_set=pair)

    for _ in range(SMALL_ROUNDS // 10):
        sum_small()
    short = timed(lambda turns, _: turns < SMALL_ROUNDS, sum_small)
    sum_large()
    before = sent_by_interface(peer)

    def more(turns: int, seconds: float) -> bool:
        """Lets the first rank decide for both."""
        go_on = np.array([first and (turns < LEAST_LARGE_ROUNDS or seconds < LARGE_SECONDS)], np.float32)
        return bool(hvd.allreduce_(go_on, name="network.more", op=hvd.Sum, process_set=pair)[0])

    long = timed(more, sum_large)
    both = hvd.allgather_object((socket.gethostname(), interface_rates(before, sent_by_interface(peer))), process_set=pair)
    interfaces = {f"{host} {interface}": rate for host, rates in both for interface, rate in rates.items()}
    return 1e6 * min(short), 1e6 * statistics.median(short), 8e-9 * large.nbytes / statistics.median(long), interfaces


def table(figures: Sequence[PairFigures]) -> str:
    """The figures as text for people."""
    width = max(
        *(len(" - ".join(f.hosts)) for f in figures), *(len(interface) + 2 for f in figures for interface in f.interfaces), 5
    )
    lines = [f"{'hosts':{width}}  {'us, least':>10}  {'us, median':>10}  {'Gbit/s each way':>16}"]
    for f in figures:
        lines += [f"{' - '.join(f.hosts):{width}}  {f.least_us:10.0f}  {f.median_us:10.0f}  {f.gbit:16.2f}"]
        lines += [f"  {interface:{width - 2}}  {'':10}  {'':10}  {rate:16.2f}" for interface, rate in f.interfaces.items()]
    slow = slow_ones(figures)
    lines += [f"slow: {line}" for line in slow] or (["no host is slower than the others"] if len(figures) > 1 else [])
    return "\n".join(lines)


def as_json(figures: Sequence[PairFigures]) -> str:
    """The figures as JSON for programs."""
    pairs = [
        {
            "hosts": f.hosts,
            "least_us": round(f.least_us, 1),
            "median_us": round(f.median_us, 1),
            "gbit_per_s": round(f.gbit, 3),
            "gbit_per_s_by_interface": {interface: round(rate, 3) for interface, rate in f.interfaces.items()},
        }
        for f in figures
    ]
    return json.dumps({"pairs": pairs, "slow": slow_ones(figures)})


def replace(path: pathlib.Path, text: str) -> None:
    """Replaces the file without following links, since others may write to the folder."""
    fresh = path.with_name(f".hvd-{secrets.token_hex(8)}")
    write_private(fresh, text.encode())
    fresh.replace(path)


def main() -> int:
    """See the module's comment."""
    parser = argparse.ArgumentParser(prog="hvdrun … -m hvd.network", description="Measures the network between a job's hosts.")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too, on rank 0's host")
    parser.add_argument("--megabytes", type=int, default=16, help="size of the large sums (default: 16)")
    options = parser.parse_args()
    if not 1 <= options.megabytes <= 1024:
        parser.error("--megabytes takes 1 to 1024")
    hvd.init()
    places = hvd.allgather_object((hvd.cross_rank(), hvd.local_rank(), socket.gethostname()))
    ranks = [rank for rank, (_, local_rank, _) in enumerate(places) if local_rank == 0]
    if len(ranks) < 2:
        if hvd.rank() == 0:
            print("hvd.network: the job has one host; name several: hvdrun -H node1:1,node2:1 -m hvd.network", file=sys.stderr)
        return 2
    found: list[PairFigures] = []
    pairs = pairs_of(len(ranks))
    for number, (a, b) in enumerate(pairs):
        if hvd.rank() == 0 and sys.stderr.isatty():
            print(f"\r{number} of {len(pairs)} pairs", end="", file=sys.stderr, flush=True)
        pair = hvd.add_process_set([ranks[a], ranks[b]]) if hvd.size() > 2 else hvd.global_process_set
        takes_part = hvd.rank() in (ranks[a], ranks[b])
        first = hvd.rank() == ranks[a]
        mine = measure(pair, ranks[b if first else a], first, options.megabytes) if takes_part else None
        told = hvd.broadcast_object(mine, ranks[a], "network.figures")
        if hvd.size() > 2:
            hvd.remove_process_set(pair)
        found.append(PairFigures((places[ranks[a]][2], places[ranks[b]][2]), *told))
    if hvd.rank() == 0:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        print(table(found), flush=True)
        if options.json:
            replace(pathlib.Path(options.json), as_json(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
