#!/usr/bin/env python3
"""Compares speeds between hosts: hosts.py [--limit 1gbit …] [--horovod VENV] [--hosts N] [--slots N] [--only ROW …] (root).

Hosts are network namespaces of this machine (tests/netns). Prints a table for each limit of their network interfaces:
microseconds, the least and the median of the rounds. Contenders from C: hvd over TCP, encrypted (tls), hvd over MPI, plain MPI
in the same runs. Between two hosts also raw sockets: a ping-pong, and a tensor sent both ways at once, over --connections
sockets. Where packets are lost, this tensor has 16 MiB at most. Contenders from torch: hvd, gloo, DDP and, if a venv with it is
named, Horovod over MPI. The contenders take turns, round by round. `scripts/compare --hosts N` is the same program.

A limit is a rate (1gbit, by tc), a delay of all packets (1ms), or a loss (0.1%). It may combine several (1gbit+1ms).  A switch
of our own (tests/netns/bad_switch.py) makes delay and loss.  The switch uses the hosts' processor, so compare columns only.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from netns import bad_switch  # noqa: E402
from netns.cluster import Cluster, NotEnded  # noqa: E402

ROWS = ["4B", "sweep", "1MiB", "8MiB", "64MiB", "64MiB-registered", "200x4KB", "160x640KB"]
CONTENDERS = {
    "tcp": ["--transport", "tcp"],
    "tls": ["--transport", "tcp", "--encrypt-tensors"],
    "mpi": ["--transport", "mpi"],
}
# Raw sockets, in the format of hvd-bench's rows.
WIRE = """
import json, os, socket, sys, threading, time
def ends(server, door):
    if not server:
        while True:
            try: line = socket.create_connection(("10.77.0.1", 7777), timeout=10)
            except OSError: time.sleep(0.05)
            else: break
    else:
        line = door.accept()[0]
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.settimeout(60)
    return line
server, connections, most = sys.argv[1] == "server", int(sys.argv[2]), int(sys.argv[3])
door = socket.create_server(("0.0.0.0", 7777)) if server else None
lines, rows, into = [ends(server, door) for _ in range(connections)], [], bytearray(64 << 20)
line = lines[0]
def read(view, line=line):
    while view: view = view[line.recv_into(view):]
def sender(line):
    # A process of its own: a thread would share the interpreter with who reads.
    asks, asked = socket.socketpair()
    if os.fork() == 0:
        asks.close()
        out = bytearray(b"x") * (64 << 20)
        while size := asked.recv(8): line.sendall(memoryview(out)[: int.from_bytes(size, "little")]); asked.sendall(b"x")
        os._exit(0)
    asked.close()
    return asks
senders = [sender(line) for line in lines]
def both_ways(bytes):
    share = bytes // connections
    for asks in senders: asks.sendall(share.to_bytes(8, "little"))
    parts = [memoryview(into)[n * share : (n + 1) * share] for n in range(connections)]
    readers = [threading.Thread(target=read, args=pair) for pair in zip(parts[1:], lines[1:])]
    for reader in readers: reader.start()
    read(parts[0])
    for reader in readers: reader.join()
    for asks in senders: asks.recv(1)
def ping(bytes):
    out, into = b"x" * bytes, memoryview(bytearray(bytes))
    if server: line.sendall(out)
    read(into)
    if not server: line.sendall(out)
for title, work, bytes, turns in (("4 B", ping, 4, 500), ("1 MiB", both_ways, 1 << 20, 20), ("8 MiB", both_ways, 8 << 20, 8),
                                  ("64 MiB", both_ways, 64 << 20, 3)):
    if bytes > most: break
    times = []
    for _ in range(turns):
        start = time.perf_counter(); work(bytes); times.append(1e6 * (time.perf_counter() - start))
    times.sort()
    rows.append({"title": title, "wire": {"min": times[0], "median": times[len(times) // 2]}})
if server: print("FIGURES " + json.dumps({"rows": rows}))
"""
TORCH = {  # row → (job of ranks.py, its contenders, the names of its figures in the table)
    "torch-sizes": (["sizes"], ["hvd", "gloo", "Horovod"], "allreduce of {}, from torch"),
    "torch-moves": (["moves"], ["hvd", "gloo", "Horovod"], "{}, from torch"),
    "torch-200x4KB": (["fused", "200", "4096", "40"], ["hvd", "Horovod"], "200 x 4 KB, from torch"),
    "torch-160x640KB": (["fused", "160", "655360", "8"], ["hvd", "Horovod"], "160 x 640 KB, from torch"),
    "torch-train": (["train"], ["none", "hvd", "DDP", "Horovod"], "train.py, a step"),
}
COLUMNS = ["tcp", "tls", "mpi", "MPI", "wire", "hvd", "gloo", "DDP", "Horovod", "none"]
RANKS = str(ROOT / "scripts/bench/ranks.py")
Times = dict[str, dict[str, list[tuple[float, float]]]]


@contextlib.contextmanager
def limited(cluster: Cluster, wanted: str) -> Iterator[None]:
    """Limits the hosts' interfaces to a rate (1gbit), a delay (1ms), a loss (0.1%), or several of these (1gbit+1ms)."""
    faults = bad_switch.Faults()
    for word in wanted.split("+") if wanted != "none" else []:
        if word.endswith("bit"):
            limit_rate(cluster, word)
        elif word.endswith("ms"):
            faults = faults._replace(delay=float(word[:-2]) / 1e3)
        elif word.endswith("%"):
            faults = faults._replace(loss=float(word[:-1]) / 1e2)
        else:
            sys.exit(f"hosts.py: --limit {wanted}: {word} is no rate (1gbit), delay (1ms) or loss (0.1%)")
    with bad_switch.put_in(cluster, faults) if any(faults) else contextlib.nullcontext():
        yield


def limit_rate(cluster: Cluster, rate: str) -> None:
    """Limits the rate at which the hosts send."""
    for host in cluster.names:
        inside = ["nsenter", f"--target={cluster.init_pid(host)}", "--net"]
        words = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "1mb", "latency", "50ms"]
        subprocess.run([*inside, *words], check=True, timeout=10)


def figures_in(output: str) -> dict[str, Any]:
    """The last figures that a program printed; empty without any."""
    lines = [line.split("FIGURES ", 1)[1] for line in output.splitlines() if "FIGURES " in line]
    return dict(json.loads(lines[-1])) if lines else {}


def show_environment(cluster: Cluster, environment: pathlib.Path) -> None:
    """Makes an environment in /tmp visible to the hosts, each of which has its own /tmp: by hard links."""
    for path in {environment.absolute(), environment.resolve()}:
        if not path.is_relative_to("/tmp"):
            continue
        for host in cluster.names:
            there = cluster.tmp(host) / path.relative_to("/tmp")
            there.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--archive", "--link", str(path), str(there)], check=True, timeout=300)


class Bench:
    """Commands on the hosts, and their figures."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace, limit: str) -> None:
        self.cluster, self.options, self.limit = cluster, options, limit
        self.times: Times = {}
        self.failures = dict[str, None]()
        self.hosts = ",".join(f"{name}:{options.slots}" for name in cluster.names)
        self.ports = itertools.count(20000)
        programs = options.python.absolute().parent
        self.hvd_bench = str(options.bench.resolve() if options.bench else programs / "hvd-bench")
        hvdrun = options.bench.resolve().parents[2] / "launcher/hvdrun" if options.bench else programs / "hvdrun"
        self.hvdrun = [str(hvdrun), "-H", self.hosts, "--no-bind", "--tcp", "--allow-writable"]

    def take(self, output: str, who: str) -> None:
        """Adds the figures that a program of ours printed; figures of hvd count as `who`'s."""
        for row in figures_in(output).get("rows", []):
            for name in ("hvd", "MPI", "wire"):
                if name in row:
                    self.add(row["title"], who if name == "hvd" else name, row[name]["min"], row[name]["median"])

    def add(self, row: str, who: str, least: float, median: float) -> None:
        """Adds one round's figures and shows them at once."""
        self.times.setdefault(row, {}).setdefault(who, []).append((least, median))
        print(f"    {row}: {who} {least:.0f} µs ({median:.0f})", file=sys.stderr, flush=True)

    def run(self, argv: list[str], what: str) -> str:
        """The output of a command on the first host; empty if it failed, which is reported once."""
        try:
            done = self.cluster.run("alpha", argv, timeout=300, env={"OMP_NUM_THREADS": "1"})
        except NotEnded:
            self.failures[f"{what}: no end within 300 s"] = None
            return ""
        if "FIGURES " in done.stdout:
            return done.stdout
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        self.failures[f"{what}: exit code {done.returncode}: {last[0][:200]}"] = None
        return ""

    def wire(self) -> None:
        """Raw sockets between the first two hosts."""
        most = 16 << 20 if "%" in self.limit else 64 << 20
        words = [str(self.options.connections), str(most)]
        server = self.cluster.popen("alpha", ["python3", "-c", WIRE, "server", *words], stdout=subprocess.PIPE, text=True)
        try:
            self.cluster.run("beta", ["python3", "-c", WIRE, "client", *words], timeout=150)
            self.take(server.communicate(timeout=30)[0], "wire")
        finally:
            server.kill()
            server.wait()

    def from_c(self, row: str) -> None:
        """A row of hvd-bench, by each contender."""
        for name in self.options.contenders:
            argv = [*self.hvdrun, *CONTENDERS[name], self.hvd_bench, "--only", row, "--json"]
            self.take(self.run(argv, f"{row} by {name}"), name)

    def from_torch(self, row: str) -> None:
        """A job of ranks.py, by each contender."""
        job, contenders, title = TORCH[row]
        for who in contenders:
            if who == "Horovod" and not self.options.horovod:
                continue
            output = self.run(self.torch_command(who, job), f"{row} by {who}")
            for name, figures in figures_in(output).items():
                self.add(title.format(name), who, figures[0], figures[1])

    def torch_command(self, who: str, job: list[str]) -> list[str]:
        """The command of one contender."""
        python = str(self.options.python.absolute())
        if who == "hvd":
            return [*self.hvdrun, python, RANKS, "hvd", *job]
        meeting = f"tcp://{self.cluster.address('alpha')}:{next(self.ports)}"
        mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-H", self.hosts]
        mpirun += ["--mca", "btl", "self,vader,tcp", "-x", f"COMPARE_MEETING={meeting}", "-x", "OMP_NUM_THREADS=1"]
        if who == "Horovod":
            return [*mpirun, str(self.options.horovod.absolute() / "bin/python"), RANKS, "hvd", *job]
        return [*mpirun, "-x", "GLOO_SOCKET_IFNAME=eth0", python, RANKS, {"DDP": "ddp"}.get(who, who), *job]

    def table(self) -> str:
        """Rows with figures, and below them the failures."""
        columns = [c for c in COLUMNS if any(c in found for found in self.times.values())]
        lines = [f"{'us: least (median)':36}" + "".join(f"{name:>18}" for name in columns)]
        for title, found in self.times.items():
            cells = [
                f"{min(t[0] for t in found[c]):.0f} ({statistics.median(t[1] for t in found[c]):.0f})" if c in found else ""
                for c in columns
            ]
            lines.append(f"{title:36}" + "".join(f"{cell:>18}" for cell in cells))
        return "\n".join([*lines, *(f"failed: {why}" for why in self.failures)])


def parser_of() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=pathlib.Path, help="hvd-bench of a build folder, whose hvdrun starts it")
    parser.add_argument(
        "--python", type=pathlib.Path, default=ROOT / ".venv/bin/python", help="with torch and hvdrun beside it"
    )
    parser.add_argument("--horovod", type=pathlib.Path, metavar="VENV")
    parser.add_argument("--hosts", type=int, default=2, choices=[2, 3, 4])
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", nargs="+", default=["none"], metavar="LIMIT", help="none, 1gbit, 1ms, 0.1%% …")
    parser.add_argument("--connections", type=int, default=1, help="of the raw sockets")
    parser.add_argument("--only", nargs="+", default=[*ROWS, *TORCH], choices=[*ROWS, *TORCH])
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS), help="from C")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """See the file's comment."""
    if os.geteuid() != 0:
        sys.exit("hosts.py: hosts are network namespaces, which need root")
    options = parser_of().parse_args(arguments)
    for chosen in options.limit:
        with Cluster(options.hosts) as cluster:
            for environment in filter(None, [options.horovod, options.python.parent.parent]):
                show_environment(cluster, environment)
            bench = Bench(cluster, options, chosen)
            with limited(cluster, chosen):
                for turn in range(options.rounds):
                    print(f"limit {chosen}, round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
                    if set(options.only) & set(ROWS):
                        bench.wire()
                    for row in options.only:
                        bench.from_torch(row) if row in TORCH else bench.from_c(row)
            control = cluster.run("alpha", ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]).stdout.strip()
        print(f"\n{options.hosts} hosts, {options.slots} ranks each; limit of the interfaces: {chosen}; TCP by {control}")
        print(bench.table(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
