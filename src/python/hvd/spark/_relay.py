"""Live output: the task's end and the driver's end of hvdrun's two relay programs."""

from __future__ import annotations

import json
import os
import selectors
import struct
import subprocess
import threading
import time
from typing import Any

from hvd._run import _program

_PIECE = 65536


class Sender:
    """In the task that runs hvdrun: passes pieces of output to the driver, and never fails the job."""

    def __init__(self, where: dict[str, Any] | None) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        if where is None:
            return
        environment = {**os.environ, "HVD_RELAY_SERVER_KEY": where["server_key"], "HVD_RELAY_KEYS": where["client_keys"]}
        self.process = subprocess.Popen(
            [_program(), "--relay-send", str(os.getpid()), where["address"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def send(self, stream: int, data: bytes) -> None:
        """stream: 1 stdout, 2 stderr.  Waits while the driver is slow; a driver that is gone is no error here."""
        with self.lock:
            if self.process is None or self.process.stdin is None:
                return
            try:
                for at in range(0, len(data), _PIECE):
                    piece = data[at : at + _PIECE]
                    self.process.stdin.write(struct.pack("<BI", stream, len(piece)) + piece)
                self.process.stdin.flush()
            except OSError:
                self._drop()

    def _drop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> bool:
        """True when the driver has all of it."""
        with self.lock:
            if self.process is None or self.process.stdin is None:
                return False
            try:
                self.process.stdin.close()
                return self.process.wait(12.0) == 0
            except (OSError, subprocess.TimeoutExpired):
                self._drop()
                return False


class Receiver:
    """At the driver: shows what arrives while a condition holds."""

    def __init__(self, bind: str, host: str, port: str, echoes: Any) -> None:
        """bind: the address to listen at; host: the name by which executors reach it; echoes(stdout, stderr): pumps."""
        where = f"[{bind}]" if ":" in bind else bind
        self.process = subprocess.Popen(
            [_program(), "--relay-listen", str(os.getpid()), f"tcp://{where}:{port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # what comes behind the first line is not read ahead
            start_new_session=True,  # Ctrl-C is the driver's matter
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            reason = self.process.stderr.read().decode(errors="replace").strip()
            self.close()
            raise RuntimeError(f"the driver cannot listen for the ranks' output: {reason}")
        about = json.loads(line)
        port = about["addresses"][0].rsplit(":", 1)[1]
        shown = f"[{host}]" if ":" in host else host
        self.where = {"address": f"tcp://{shown}:{port}", **{key: about[key] for key in ("server_key", "client_keys")}}
        self.echoes = echoes(self.process.stdout, self.process.stderr)

    def pump(self, going: Any, tick: Any, rest_seconds: Any) -> None:
        """Shows output while going() is true, calls tick() now and then; then waits rest_seconds() for the rest."""
        deadline = None
        with selectors.DefaultSelector() as selector:
            for echo in self.echoes:
                selector.register(echo.stream, selectors.EVENT_READ, echo)
            while True:
                for key, _ in selector.select(0.1):
                    if not key.data.pump():
                        selector.unregister(key.fileobj)
                if going():
                    tick()
                    if not selector.get_map():
                        time.sleep(0.1)
                    continue
                deadline = deadline or time.monotonic() + rest_seconds()
                if not selector.get_map() or time.monotonic() > deadline:
                    return

    def close(self) -> None:
        """Ends the program; harmless when it has ended."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(3.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
