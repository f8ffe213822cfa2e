"""Live output and large results: the task's end and the driver's end of hvdrun's two relay programs."""

from __future__ import annotations

import json
import os
import selectors
import struct
import subprocess
import tempfile
import threading
import time
from typing import Any

from hvd._job.run import hvdrun_program
from hvd._runtime import environment as _environment

_PIECE = 65536
# Time for the driver to receive remaining data at the end: output alone; the rest of large results.
_CLOSE_SECONDS, _CLOSE_RESULTS_SECONDS = 12.0, 300.0


class Sender:
    """In the task that runs hvdrun: passes output and results to the driver, and never fails the job."""

    def __init__(self, where: dict[str, Any] | None) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.close_seconds = _CLOSE_SECONDS
        if where is None:
            return
        environment = {
            **_environment.whole,
            "HVD_RELAY_SERVER_KEY": where["server_key"],
            "HVD_RELAY_KEYS": where["client_keys"],
        }
        self.process = subprocess.Popen(
            [hvdrun_program(), "--relay-send", str(os.getpid()), where["address"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def send(self, stream: int, data: bytes | bytearray) -> bool:
        """stream: 1 stdout, 2 stderr, 3 results.  Waits while the driver is slow; False when it is gone."""
        with self.lock:
            if self.process is None or self.process.stdin is None:
                return False
            if stream == 3:
                self.close_seconds = _CLOSE_RESULTS_SECONDS
            try:
                for at in range(0, len(data), _PIECE):
                    piece = data[at : at + _PIECE]
                    self.process.stdin.write(struct.pack("<BI", stream, len(piece)) + piece)
                self.process.stdin.flush()
                return True
            except OSError:
                self._drop()
                return False

    def _drop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> bool:
        """Returns True if the driver has received everything."""
        with self.lock:
            if self.process is None or self.process.stdin is None:
                return False
            try:
                self.process.stdin.close()
                return self.process.wait(self.close_seconds) == 0
            except (OSError, subprocess.TimeoutExpired):
                self._drop()
                return False


class Kept:
    """At the driver: the results from the channel, in a file without a name, which disappears with this process."""

    def __init__(self, folder: str | None) -> None:
        self.folder = folder or tempfile.gettempdir()
        self.file = tempfile.TemporaryFile(buffering=0, dir=folder)
        self.bytes = 0
        self.error: OSError | None = None
        end, self.write_end = os.pipe()
        self.stream = os.fdopen(end, "rb", buffering=0)

    def pump(self) -> bool:
        """Returns False at the end.  On a full disk it still reads all data, because the output comes by the same pipe."""
        data = os.read(self.stream.fileno(), 1 << 20)
        rest = memoryview(data)
        while rest and self.error is None:
            try:
                count = self.file.write(rest)
                self.bytes += count
                rest = rest[count:]
            except OSError as error:
                self.error = error
                self.file.truncate(0)
        return bool(data)

    def refuse_less_than(self, size: int) -> None:
        """RuntimeError if less than `size` bytes have arrived."""
        if self.error is not None:
            raise RuntimeError(
                f"the results are {size / 1e6:.0f} MB, and the driver cannot keep them in {self.folder}: {self.error.strerror} "
                "(make room, or name another folder: spark.local.dir)"
            )
        if self.bytes != size:
            raise RuntimeError(f"of {size} bytes of results only {self.bytes} reached the driver: the connection broke off")

    def given_away(self) -> None:
        """The relay's program has the writing end: the pipe ends when the program does."""
        os.close(self.write_end)
        self.write_end = -1

    def close(self) -> None:
        """Removes the file."""
        if self.write_end >= 0:
            self.given_away()
        self.file.close()
        self.stream.close()


class Receiver:
    """At the driver: shows and stores arriving data while a condition holds."""

    def __init__(self, bind: str, host: str, port: str, echoes: Any, kept: Kept) -> None:
        """bind: the address to listen at; host: the name by which executors reach it; echoes(stdout, stderr): makes the
        pumps.
        """
        where = f"[{bind}]" if ":" in bind else bind
        self.process = subprocess.Popen(
            [hvdrun_program(), "--relay-listen", str(os.getpid()), str(kept.write_end), f"tcp://{where}:{port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(kept.write_end,),
            bufsize=0,  # does not read beyond the first line
            start_new_session=True,  # the driver handles Ctrl-C
        )
        kept.given_away()
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
        self.heard = False  # whether any data has arrived
        self.pumps = [*echoes(self.process.stdout, self.process.stderr), kept]

    def pump(self, going: Any, tick: Any, rest_seconds: Any) -> None:
        """Takes arriving data while going() is true, and calls tick() now and then.  Then waits rest_seconds() for late
        data."""
        deadline = None
        with selectors.DefaultSelector() as selector:
            for pump in self.pumps:
                selector.register(pump.stream, selectors.EVENT_READ, pump)
            while True:
                for key, _ in selector.select(0.1):
                    if key.data.pump():
                        self.heard = True
                    else:
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
