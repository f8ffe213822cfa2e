"""Strangers at a port: port_strangers.py ADDRESS PORT.  They stay until standard input ends, at most a minute.

Some send nothing, some garbage, some ZeroMQ's greeting and then nothing, or a length of 2^63.
"""

import contextlib
import os
import resource
import select
import socket
import sys

COUNT = 400
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(47)
SAYINGS = (
    b"",
    os.urandom(5000),
    GREETING,
    GREETING + b"\x06" + (1 << 63).to_bytes(8, "big") + b"x" * 1000,
    GREETING + b"\x04\xc8\x05HELLO" + os.urandom(194),
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x80\x04cposix\nsystem\n(S'touch /tmp/pickled'\ntR.",
)


def main() -> None:
    """Connects, speaks, and waits."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (COUNT + 100, COUNT + 100))
    links = []
    for number in range(COUNT):
        link = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
        with contextlib.suppress(OSError):
            link.sendall(SAYINGS[number % len(SAYINGS)])
        links.append(link)
    print("connected", flush=True)
    select.select([sys.stdin], [], [], 60)


main()
