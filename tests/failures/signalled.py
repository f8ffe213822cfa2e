"""A script with a handler for every signal that hvdrun forwards, and a test that sends them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

from support import hvdrun

SCRIPT = """
import os, signal, sys, time

def note(number, frame):
    print("got", signal.Signals(number).name, flush=True)

def end(number, frame):
    note(number, frame)
    time.sleep(0.3)
    open("saved" + os.environ["HVD_RANK"], "w").close()
    sys.exit(0)

for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT):
    signal.signal(number, note)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, end)
try:
    print("up", flush=True)
    while True:  # a signal between Python's last look and one long sleep would wait for the end of that
        time.sleep(0.02)
except KeyboardInterrupt:
    end(signal.SIGINT, None)
"""

HANDED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)


def follow(
    job: subprocess.Popen[str], send: Callable[[int], None], ranks: int, end: signal.Signals, extra: str | None = None
) -> None:
    """All ranks see every signal to hvdrun, and the last one ends them; hvdrun's exit code names it.

    extra: a line that may also be printed.
    """
    assert job.stdout is not None
    assert job.stderr is not None

    def all_say(text: str) -> None:
        for _ in range(ranks):
            assert job.stdout is not None
            assert job.stdout.readline().endswith(f"] {text}\n")

    all_say("up")
    for number in HANDED_ON:
        send(number)
        all_say(f"got {number.name}")
    send(end)
    all_say(f"got {end.name}")
    assert job.wait(60) == 128 + end
    first, _, rest = hvdrun.said(job.stderr.read()).partition("\n")
    assert first.startswith("hvdrun: the ranks are stopped; they go on with: kill -CONT ")
    lines = [line for line in rest.splitlines() if not (extra and extra in line)]
    assert len(lines) == 1, rest  # no tracebacks, no output of mpirun
