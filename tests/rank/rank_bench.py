"""hvdrank under a stand-in for hvdrun: see driver.cc."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build"))
HVDRANK = BUILD / "src/rank/hvdrank"
DRIVER = BUILD / "tests/rank/rank_driver"
LIMIT = 60.0  # for hangs only
PLACEMENT = {
    "cpus": [],
    "threads": 0,
    "bind": True,
    "planned": False,
    "gpu": "",
    "gpu_mode": "none",
    "share_gpus": False,
}


def manifest(**changes: Any) -> dict[str, Any]:
    """A manifest for `true`; payload fields may be given directly (kind, name, args, …)."""
    payload = {"kind": "command", "name": "true", "args": [], "sha256": "", "bytes": 0, "deliver": False, "path": ""}
    env = dict(os.environ)
    env.update(changes.pop("env", {}))
    for key in list(changes):
        if key in payload:
            payload[key] = changes.pop(key)
    whole = {
        "protocol": 1,
        "job": "testjob",
        "rank": 0,
        "size": 1,
        "local_rank": 0,
        "local_size": 1,
        "cross_rank": 0,
        "cross_size": 1,
        "host": "testhost",
        "cwd": "/tmp",
        "python": "python3",
        "env": [f"{k}={v}" for k, v in env.items()],
        "payload": payload,
        "placement": PLACEMENT,
        "grace_seconds": 2,
        "collect_results": False,
        "timeline": False,
    }
    whole.update(changes)
    return whole


class Driver:
    """Runs the driver and collects its events; every wait has a limit."""

    def __init__(
        self, folder: Path, manifests: list[dict[str, Any]], payload: bytes | None = None, env: dict[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifests").write_text("".join(json.dumps(m) + "\n" for m in manifests))
        command = [str(DRIVER), str(HVDRANK), str(folder / "manifests")]
        if payload is not None:
            (folder / "payload").write_bytes(payload)
            command.append(str(folder / "payload"))
        # Short, because of the socket in it; it disappears with this object, however the driver ends.
        self._folder = tempfile.TemporaryDirectory(prefix="hvd-driver-", dir="/tmp", ignore_cleanup_errors=True)
        environment = {**os.environ, "HVD_DRIVER_FOLDER": self._folder.name, **(env or {})}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.events: list[dict[str, Any]] = []
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def say(self, command: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def wait(
        self, event: str, rank: int = 0, limit: float = LIMIT, test: Callable[[dict[str, Any]], bool] | None = None
    ) -> dict[str, Any]:
        """The first event of that kind, also among earlier ones."""
        end = time.monotonic() + limit
        seen = 0
        while True:
            for e in self.events[seen:]:
                if e["event"] == event and e["rank"] == rank and (test is None or test(e)):
                    return e
            seen = len(self.events)
            try:
                got = self._queue.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event} of rank {rank} within {limit} s: {self.events[-5:]}") from None
            if got is None:
                raise AssertionError(f"the driver ended without {event} of rank {rank}: {self.events[-5:]}")
            self.events.append(got)

    def finish(self, limit: float = LIMIT) -> Driver:
        """Waits for the end of all processes."""
        end = time.monotonic() + limit
        while True:
            try:
                got = self._queue.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                self.process.kill()
                raise AssertionError(f"not finished within {limit} s: {self.events[-5:]}") from None
            if got is None:
                self.process.wait(limit)
                return self
            self.events.append(got)

    def death(self, rank: int = 0) -> dict[str, Any]:
        return next(e["death"] for e in self.events if e["event"] == "death" and e["rank"] == rank)

    def started(self, rank: int = 0) -> dict[str, Any]:
        return next(e["started"] for e in self.events if e["event"] == "started" and e["rank"] == rank)

    def text(self, stream: str = "stdout", rank: int = 0) -> str:
        return "".join(e["text"] for e in self.events if e["event"] == stream and e["rank"] == rank)

    def result(self, rank: int = 0) -> bytes:
        return bytes.fromhex("".join(e["hex"] for e in self.events if e["event"] == "result" and e["rank"] == rank))
