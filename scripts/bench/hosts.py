#!/usr/bin/env python3
"""Allreduce between hosts, side by side: hosts.py HVD_BENCH [--hosts N] [--slots N] [--rounds N] [--only ROW …] (root).

HVD_BENCH is the hvd-bench of a build folder (optimised). Hosts are network namespaces of this machine (tests/netns). Prints
for each row microseconds, least and median, of ours over TCP, encrypted (tls), ours over MPI, plain MPI in the same runs, and,
between two hosts, of raw sockets: a ping-pong, and a tensor sent both ways at once. The contenders take turns, round by round.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from netns.cluster import Cluster  # noqa: E402

ROWS = ["4B", "sweep", "1MiB", "8MiB", "64MiB", "64MiB-registered", "200x4KB", "160x640KB"]
CONTENDERS = {
    "tcp": ["--transport", "tcp"],
    "tls": ["--transport", "tcp", "--encrypt-tensors"],
    "mpi": ["--transport", "mpi"],
}
# Raw sockets, told as hvd-bench tells its rows.
WIRE = """
import json, socket, sys, threading, time
def ends(server):
    if not server:
        while True:
            try: line = socket.create_connection(("10.77.0.1", 7777), timeout=10)
            except OSError: time.sleep(0.05)
            else: break
    else:
        door = socket.create_server(("0.0.0.0", 7777))
        line = door.accept()[0]
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.settimeout(20)
    return line
server = sys.argv[1] == "server"
line, rows = ends(server), []
def read(view):
    while view: view = view[line.recv_into(view):]
def both_ways(bytes):
    out, into = bytearray(bytes), memoryview(bytearray(bytes))
    sender = threading.Thread(target=line.sendall, args=(out,))
    sender.start(); read(into); sender.join()
def ping(bytes):
    out, into = b"x" * bytes, memoryview(bytearray(bytes))
    if server: line.sendall(out)
    read(into)
    if not server: line.sendall(out)
for title, work, bytes, turns in (("4 B", ping, 4, 500), ("1 MiB", both_ways, 1 << 20, 20), ("8 MiB", both_ways, 8 << 20, 8),
                                  ("64 MiB", both_ways, 64 << 20, 3)):
    times = []
    for _ in range(turns):
        start = time.perf_counter(); work(bytes); times.append(1e6 * (time.perf_counter() - start))
    times.sort()
    rows.append({"title": title, "wire": {"min": times[0], "median": times[len(times) // 2]}})
if server: print("FIGURES " + json.dumps({"rows": rows}))
"""
Times = dict[str, dict[str, list[tuple[float, float]]]]


def take(output: str, who: str, times: Times) -> bool:
    """Adds the figures that a program has printed; those of hvd count as `who`'s."""
    lines = [line.split("FIGURES ", 1)[1] for line in output.splitlines() if "FIGURES " in line]
    for row in json.loads(lines[-1])["rows"] if lines else []:
        for name in ("hvd", "MPI", "wire"):
            if name in row:
                found = times.setdefault(row["title"], {}).setdefault(who if name == "hvd" else name, [])
                found.append((row[name]["min"], row[name]["median"]))
    return bool(lines)


def wire(cluster: Cluster, times: Times) -> None:
    """Raw sockets between the first two hosts."""
    server = cluster.popen("alpha", ["python3", "-c", WIRE, "server"], stdout=-1, text=True)
    try:
        cluster.run("beta", ["python3", "-c", WIRE, "client"], timeout=60)
        take(server.communicate(timeout=30)[0], "wire", times)
    finally:
        server.kill()
        server.wait()


def main() -> int:
    """See the file's comment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=ROWS, choices=ROWS)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    options = parser.parse_args()
    times: Times = {}
    with Cluster(options.hosts) as cluster:
        hosts = ",".join(f"{name}:{options.slots}" for name in cluster.names)
        bench = options.bench.resolve()
        hvdrun = [str(bench.parents[2] / "launcher/hvdrun"), "-H", hosts, "--no-bind", "--tcp", "--allow-writable"]
        for _ in range(options.rounds):
            wire(cluster, times)
            for row in options.only:
                for name in options.contenders:
                    argv = [*hvdrun, *CONTENDERS[name], str(bench), "--only", row, "--json"]
                    done = cluster.run("alpha", argv, timeout=300)
                    if not take(done.stdout, name, times):
                        print(f"{row} by {name} failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
    columns = [*options.contenders, "MPI", "wire"]
    print(f"{'us: least (median)':28}" + "".join(f"{name:>20}" for name in columns))
    for title, found in times.items():
        cells = [
            f"{min(t[0] for t in found[c]):.0f} ({statistics.median(t[1] for t in found[c]):.0f})" if c in found else ""
            for c in columns
        ]
        print(f"{title:28}" + "".join(f"{cell:>20}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
