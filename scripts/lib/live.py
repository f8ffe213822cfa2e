"""The progress that scripts/test prints while parts run: parts, failures at once, and totals twice a minute."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass

from context import Context

LOOK_SECONDS = 1.0
TELL_SECONDS = 30.0


@dataclass
class Running:
    """A running part, and the position up to which its records have been read."""

    context: Context
    offset: int = 0
    done: int = 0
    count: int = 0

    def failures(self) -> list[str]:
        """Names of the tests that have failed since the last call."""
        path = self.context.records
        if path is None or not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        failed = []
        for record in map(json.loads, whole.splitlines()):
            self.count = record.get("count", self.count)
            self.done += "test" in record
            if record.get("outcome") == "failed":
                failed.append(str(record["test"]))
        return failed

    def __str__(self) -> str:
        return str(self.context.part.name) + (f" ({self.done} of {self.count} tests)" if self.count else "")


class Live:
    """Prints lines that begin with the seconds since its start.  Threads: any."""

    def __init__(self, parts: int) -> None:
        self._begin = time.monotonic()
        self._parts, self._begun = parts, 0
        self._lock = threading.Lock()
        self._running: list[Running] = []
        threading.Thread(target=self._watch, daemon=True).start()

    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def say(self, text: str) -> None:
        print(f"[{self.seconds():4.0f} s] {text}", flush=True)

    def begin(self, context: Context) -> None:
        """A part begins."""
        with self._lock:
            self._begun += 1
            self._running.append(Running(context))
            self.say(f"part {self._begun} of {self._parts}: {context.part.name}: {context.part.what}")

    def end(self, context: Context) -> None:
        """A part has ended; the caller prints its result."""
        with self._lock:
            self._running = [running for running in self._running if running.context is not context]

    def _watch(self) -> None:
        told = time.monotonic()
        while True:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                for running in self._running:
                    for name in running.failures():
                        self.say(f"FAILED {name}")
                if time.monotonic() - told > TELL_SECONDS and self._running:
                    told = time.monotonic()
                    self.say("running: " + ", ".join(map(str, self._running)))
