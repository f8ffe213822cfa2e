"""A stranger on the network: hostile.py SEED COUNT SECONDS CANARY HOST:PORT,… [RECORDING …]

Runs only on a host of a cluster: it ends at once under another hostname, and connects only to addresses of the cluster's own
network.  The stranger opens COUNT connections, at most OPEN_AT_ONCE at a time, for at most SECONDS, and prints {"made",
"refused", "bytes_back", "kinds"}.  CANARY is a path; a message that could make a careless receiver run something would only
make that file.  RECORDING: a file with one direction of a genuine connection, to be replayed.
"""

from __future__ import annotations

import base64
import collections
import hashlib
import hmac
import json
import os
import pathlib
import pickle
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Callable

OPEN_AT_ONCE = 64
HELD_SECONDS = 0.5  # half-open and slow connections
GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + b"\0" * 32  # ZMTP 3.0


class Canary:
    """An object that makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "w")


def garbage(random: random.Random, _: str) -> bytes:
    return random.randbytes(random.choice([1, 10, 64, 4096, 65536]))


def half_open(random: random.Random, _: str) -> bytes:
    """Returns an empty or incomplete ZeroMQ greeting; the stranger sends no more."""
    return GREETING[: random.choice([0, 1, 10, 11, 12, 63])]


def wrong_mechanism(random: random.Random, _: str) -> bytes:
    """ZeroMQ without a key."""
    name = random.choice([b"NULL", b"PLAIN", b"GSSAPI"])
    ready = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    return GREETING[:12] + name.ljust(20, b"\0") + b"\0" * 32 + bytes([4, len(ready)]) + ready


def unknown_key(random: random.Random, _: str) -> bytes:
    """A CURVE greeting with a hello box of noise, or one that is cut short."""
    hello = b"\x05HELLO\x01\x00" + b"\0" * 72 + random.randbytes(32) + random.randbytes(8) + random.randbytes(80)
    hello = hello[: random.choice([len(hello), 20, 100])]
    return GREETING + bytes([4, len(hello)]) + hello


def huge_length(random: random.Random, _: str) -> bytes:
    """Frames of up to 2^63 bytes, of which a part is sent."""
    size = random.choice([1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
    return GREETING + bytes([random.choice([2, 3, 6])]) + struct.pack(">Q", size) + random.randbytes(1000)


def key_value_store(random: random.Random, canary: str) -> bytes:
    """A pickle PUT into a rendezvous server."""
    body = pickle.dumps(Canary(canary))
    body = random.choice([body, base64.b64encode(body)])
    path = random.choice(["/worker_addresses/0", "/runfunc/func", "/global/0", "/rank_and_size/alpha:0", "/runfunc_result/0"])
    return f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def signed_service(random: random.Random, canary: str) -> bytes:
    """Digest, length, pickle: a driver's or a task's service; signed with the stranger's key: none."""
    body = pickle.dumps(Canary(canary))
    digest = hmac.new(random.choice([b"", b"0" * 32]), body, hashlib.sha256).digest()
    return digest + struct.pack(random.choice(["i", ">I", "<Q"]), len(body)) + body


def bare_pickle(random: random.Random, canary: str) -> bytes:
    body = pickle.dumps(Canary(canary), protocol=random.choice([0, 2, 4]))
    return random.choice([b"", struct.pack("<I", len(body)), struct.pack(">Q", len(body))]) + body


KINDS: list[Callable[[random.Random, str], bytes]] = [
    *(garbage, half_open, wrong_mechanism, unknown_key, huge_length, key_value_store, signed_service, bare_pickle)
]


class Stranger:
    """One run of the program."""

    def __init__(self, seed: int, canary: str, targets: list[tuple[str, int]], recordings: list[bytes]) -> None:
        self.random = random.Random(seed)
        self.canary, self.targets, self.recordings = canary, targets, recordings
        self.open: collections.deque[tuple[float, socket.socket]] = collections.deque()
        self.kinds: collections.Counter[str] = collections.Counter()
        self.refused = self.bytes_back = 0

    def connection(self) -> None:
        """Opens a connection, and sends something."""
        kinds: list[Callable[[random.Random, str], bytes]] = [*KINDS, *([self.replay] if self.recordings else [])]
        kind = self.random.choice(kinds)
        words = kind(self.random, self.canary)
        slowly = self.random.random() < 0.1
        try:
            peer = socket.create_connection(self.random.choice(self.targets), 0.02)
            peer.setblocking(False)
            peer.send(words[:3] if slowly else words)  # bytes beyond the socket's buffer are dropped
        except OSError:
            self.refused += 1
        else:
            self.kinds["slowly: " * slowly + kind.__name__] += 1
            self.open.append((time.monotonic(), peer))

    def replay(self, random: random.Random, _: str) -> bytes:
        return random.choice(self.recordings)

    def turn(self) -> None:
        """Reads answers, sends single bytes on some connections, closes the oldest."""
        now = time.monotonic()
        peers = [peer for _, peer in self.open]
        for peer in select.select(peers, [], [], 0)[0]:
            try:
                self.bytes_back += len(peer.recv(65536))
            except OSError:
                pass
        while self.open and (now - self.open[0][0] > HELD_SECONDS or len(self.open) > OPEN_AT_ONCE):
            self.open.popleft()[1].close()
        for _, peer in list(self.open)[:4]:
            try:
                peer.send(b"\0")
            except OSError:
                pass


def main() -> None:
    """See the file's comment."""
    seed, count, seconds, canary = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    targets = [(word.rpartition(":")[0], int(word.rpartition(":")[2])) for word in sys.argv[5].split(",")]
    if os.uname().nodename != "gamma" or not all(host.startswith("10.77.0.") for host, _ in targets):
        sys.exit("only for a test's own hosts")
    os.nice(19)
    stranger = Stranger(seed, canary, targets, [pathlib.Path(path).read_bytes() for path in sys.argv[6:]])
    end = time.monotonic() + seconds
    attempts = 0
    while attempts < count and time.monotonic() < end:
        attempts += 1
        stranger.connection()
        stranger.turn()
    stranger.turn()
    made = sum(stranger.kinds.values())
    told = {"attempts": attempts, "made": made, "refused": stranger.refused, "bytes_back": stranger.bytes_back}
    print(json.dumps({**told, "kinds": stranger.kinds}))


if __name__ == "__main__":
    main()
