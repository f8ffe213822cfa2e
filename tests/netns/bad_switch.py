"""A switch that delays, loses and reorders packets; replaces a cluster's bridge (the kernel's netem is not everywhere).

    bad_switch.py [--delay SECONDS] [--loss SHARE] [--swap SHARE] [--seed N] INTERFACE INTERFACE [INTERFACE]

Runs in the network namespace of the interfaces, none of which is on a bridge, and prints "ready".  A packet is what the
hosts' kernels pass to their interfaces.  --loss and --swap thus affect packets of a cable only if put_in() has disabled
segmentation by the interface.  The switch carries some 100 MB/s of such packets, and a GB/s of large ones.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from netns.cluster import Cluster

ALL_PROTOCOLS, SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 3, 263, 15, 23, 33
HEADER = 10  # bytes of virtio_net_hdr before each packet: instructions for segmentation and checksum
MOST_BYTES = 70_000
MOST_AT_ONCE = 64  # packets from one interface before the others get their turn
ROOM = 128 << 20  # kernel's buffer for received bytes of an interface


class Faults(NamedTuple):
    """Delay of packets in seconds; the shares that are lost, and overtaken by the next packet."""

    delay: float = 0.0
    loss: float = 0.0
    swap: float = 0.0


@contextlib.contextmanager
def put_in(cluster: Cluster, faults: Faults, seed: int = 0) -> Iterator[None]:
    """Runs the bad switch in place of the cluster's own during the `with` block."""
    interfaces = [f"p-{host}" for host in cluster.names]
    at_switch = ["nsenter", f"--target={cluster.switch_pid}", "--net"]

    def link(place: list[str], *words: str) -> None:
        subprocess.run([*place, "ip", "link", "set", *words], check=True, timeout=10)

    def segments(most: int) -> None:
        for host in cluster.names:
            link(["nsenter", f"--target={cluster.init_pid(host)}", "--net"], "eth0", "gso_max_segs", str(most))

    if faults.loss or faults.swap:
        segments(1)
    for interface in interfaces:
        link(at_switch, interface, "nomaster")
    options = [f"--delay={faults.delay}", f"--loss={faults.loss}", f"--swap={faults.swap}", f"--seed={seed}"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    switch = subprocess.Popen([*at_switch, sys.executable, __file__, *options, *interfaces], **pipes)
    try:
        assert switch.stdout is not None
        assert switch.stdout.readline() == "ready\n"
        yield
    finally:
        switch.kill()
        switch.communicate()
        for interface in interfaces:
            link(at_switch, interface, "master", "switch")
        segments(65535)


def port(interface: str) -> socket.socket:
    """A socket that receives all packets of the interface, and sends through it."""
    line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    line.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    line.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    line.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
    line.setblocking(False)
    line.bind((interface, ALL_PROTOCOLS))
    return line


class Switch:
    """Moves packets between ports."""

    def __init__(self, ports: list[socket.socket], faults: Faults, seed: int) -> None:
        self.ports, self.faults = ports, faults
        self.chance = random.Random(seed)
        self.homes = dict[bytes, socket.socket]()  # by Ethernet address
        self.waiting = list[tuple[float, int, socket.socket, bytes]]()  # by departure time
        self.count = 0

    def run(self, owner: int) -> None:
        """Forwards packets until the other end of `owner` is closed: the test that started this process has then ended."""
        while True:
            left = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else None
            ready = select.select([owner, *(line.fileno() for line in self.ports)], [], [], left)[0]
            if owner in ready:
                return
            for line in self.ports:
                if line.fileno() in ready:
                    self.take(line)
            now = time.monotonic()
            while self.waiting and self.waiting[0][0] <= now:
                _, _, to, packet = heapq.heappop(self.waiting)
                with contextlib.suppress(OSError):  # its interface is full or down: lost, as on a cable
                    to.send(packet)

    def take(self, line: socket.socket) -> None:
        """Takes the packets that have arrived at a port."""
        for _ in range(MOST_AT_ONCE):
            try:
                packet = line.recv(MOST_BYTES)
            except OSError:  # no more packets, or the interface is down
                return
            self.homes[packet[HEADER + 6 : HEADER + 12]] = line
            if self.faults.loss and self.chance.random() < self.faults.loss:
                continue
            leaves = time.monotonic() + self.faults.delay
            if self.faults.swap and self.chance.random() < self.faults.swap:
                leaves += max(0.0005, self.faults.delay / 10)
            home = self.homes.get(packet[HEADER : HEADER + 6])
            for to in [home] if home else self.ports:
                if to is not line:
                    self.count += 1
                    heapq.heappush(self.waiting, (leaves, self.count, to, packet))


def main() -> None:
    """See the file's comment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("delay", "loss", "swap"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("interfaces", nargs="+")
    options = parser.parse_args()
    ports = [port(interface) for interface in options.interfaces]
    print("ready", flush=True)
    Switch(ports, Faults(options.delay, options.loss, options.swap), options.seed).run(sys.stdin.fileno())


if __name__ == "__main__":
    main()
