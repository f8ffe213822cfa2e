"""The open ports of processes in a network namespace, and their answers to a stranger.

As a program: sends bytes to each "KIND ADDRESS PORT" of its standard input, and prints that line with the result: "answers",
"stays silent", "is shut" (the connection is refused, or dropped).
"""

from __future__ import annotations

import os
import pathlib
import socket
import sys
from collections.abc import Iterator

LISTENING = "0A"
# ZeroMQ sends these bytes to every caller, before it knows the caller.
ZEROMQ = b"\xff\0\0\0\0\0\0\0\x01\x7f"


def of_process(pid: str) -> Iterator[tuple[str, str, int, int]]:
    """(kind, address, port, owner's uid) of each listening TCP and each bound UDP socket in the process's namespace."""
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            host, _, port = words[1].rpartition(":")
            if kind.startswith("tcp") and words[3] != LISTENING:
                continue
            raw = b"".join(bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8))
            address = socket.inet_ntop(socket.AF_INET6 if kind.endswith("6") else socket.AF_INET, raw)
            yield kind[:3], {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address), int(port, 16), int(words[7])


def shout(kind: str, address: str, port: int, patience: float) -> str:
    """The reaction to 60 random bytes: "answers", "stays silent", "is shut"."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as stranger:
        stranger.settimeout(patience)
        try:
            stranger.connect((address, port))
        except OSError:
            return "is shut"
        try:
            stranger.sendall(os.urandom(60))
            heard = stranger.recv(100)
        except OSError:
            return "stays silent"
    return "answers" if heard and not heard.startswith(ZEROMQ) and not ZEROMQ.startswith(heard) else "stays silent"


def main() -> None:
    """See the file's comment."""
    for line in sys.stdin:
        kind, address, port = line.split()
        print(kind, address, port, shout(kind, address, int(port), 0.5), flush=True)


if __name__ == "__main__":
    main()
