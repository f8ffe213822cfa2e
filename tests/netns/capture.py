"""Records all frames that cross a cluster's bridge, and searches them.

    with Capture(cluster) as wire:
        ...
    wire.find(b"secret")        # [] or the streams that carry it, in clear

As a program, capture.py FILE records until its stdin closes: for each frame a u32 length and the frame, little endian.
"""

from __future__ import annotations

import base64
import json
import pathlib
import select
import socket
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster import Cluster

ETH_P_ALL, SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE = 3, 263, 6, 33
RING_BYTES = 256 << 20
Flow = tuple[str, int, str, int]


def record(path: str) -> None:
    """The recording program: runs in the switch's namespace; prints {"ready"} and at the end {"frames", "dropped"}."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RING_BYTES)
    wire.settimeout(0.1)
    print(json.dumps({"ready": True}), flush=True)
    frames, ending = 0, False
    with open(path, "wb") as out:
        while True:
            try:
                frame = wire.recv(1 << 17)
                out.write(struct.pack("<I", len(frame)) + frame)
                frames += 1
            except TimeoutError:
                if ending:
                    break  # stdin is closed and the ring is empty
            if not ending and select.select([0], [], [], 0)[0]:
                ending = True
    dropped = struct.unpack("II", wire.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
    print(json.dumps({"frames": frames, "dropped": dropped}), flush=True)


def frames(path: pathlib.Path) -> Iterator[bytes]:
    """The recorded Ethernet frames."""
    with path.open("rb") as file:
        while header := file.read(4):
            yield file.read(struct.unpack("<I", header)[0])


def tcp_segment(frame: bytes) -> tuple[Flow, int, bytes] | None:
    """(flow, sequence number, payload) of an IPv4 TCP frame with a payload; None for anything else."""
    if len(frame) < 34 or frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return None
    header = 14 + (frame[14] & 15) * 4
    end = 14 + struct.unpack(">H", frame[16:18])[0]
    source, target, sequence = struct.unpack(">HHI", frame[header : header + 8])
    payload = frame[header + (frame[header + 12] >> 4) * 4 : end]
    if not payload:
        return None
    return (socket.inet_ntoa(frame[26:30]), source, socket.inet_ntoa(frame[30:34]), target), sequence, payload


class Capture:
    """Records the bridge of `cluster` between enter and exit.  RuntimeError at the exit if frames were lost."""

    def __init__(self, cluster: Cluster) -> None:
        self._path = cluster.state / "wire"
        self._recorder = subprocess.Popen(
            ["nsenter", f"--target={cluster.switch_pid}", "--net", sys.executable, __file__, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.streams: dict[Flow, bytes] = {}
        self.frame_count = 0

    def __enter__(self) -> Capture:
        assert self._recorder.stdout is not None
        if not self._recorder.stdout.readline():
            raise RuntimeError("the recorder did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        out, _ = self._recorder.communicate(timeout=60)  # closes its stdin
        summary = json.loads(out)
        self.frame_count = summary["frames"]
        if summary["dropped"] and error is None:
            raise RuntimeError(f"the recorder lost {summary['dropped']} frames")
        self.streams = self._reassemble()

    def _reassemble(self) -> dict[Flow, bytes]:
        """One byte string for each direction of each connection.  Frames are seen on several ports; only one copy is kept."""
        pieces: dict[Flow, dict[int, bytes]] = defaultdict(dict)
        other = []
        for frame in frames(self._path):
            segment = tcp_segment(frame)
            if segment is None:
                other.append(frame)
                continue
            flow, sequence, payload = segment
            if len(payload) > len(pieces[flow].get(sequence, b"")):
                pieces[flow][sequence] = payload
        streams = {flow: join(parts) for flow, parts in pieces.items()}
        streams["not tcp", 0, "not tcp", 0] = b"".join(other)
        return streams

    def find(self, needle: bytes) -> list[Flow]:
        """The streams that contain `needle` in clear, in base64 at any of its three alignments, or in hex."""
        forms = {needle, needle.hex().encode(), needle.hex().upper().encode()}
        for shift in range(3):
            encoded = base64.b64encode(b"\0" * shift + needle)
            forms.add(encoded[4 if shift else 0 : -4 if len(encoded) > 12 else None])
        return [flow for flow, data in self.streams.items() if any(form in data for form in forms)]


def join(parts: dict[int, bytes]) -> bytes:
    """Segments in the order of their sequence numbers, which may wrap, without overlaps."""
    first = min(parts)
    if max(parts) - first > 1 << 31:  # the numbers wrapped
        first = min(number for number in parts if number > 1 << 31)
    out, position = [], 0
    for number, data in sorted(((number - first) % (1 << 32), data) for number, data in parts.items()):
        if number + len(data) <= position:
            continue
        out.append(data[max(0, position - number) :])
        position = number + len(data)
    return b"".join(out)


if __name__ == "__main__":
    record(sys.argv[1])
