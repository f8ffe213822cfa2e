"""The context in which a part of the suite runs its commands.

Every command runs under a limit, in a process group of its own that is killed as a whole. Its output goes to
.cache/tests/PART.log, and the end is shown after a failure.
"""

from __future__ import annotations

import enum
import os
import pathlib
import select
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tally import Cost, Tally, check

LOGS = pathlib.Path(".cache/tests")
TAIL_LINES = 60
SHOWN_COMMAND = 300  # characters; some name every file of the tree
RUNNING: set[subprocess.Popen[bytes]] = set()  # commands of all parts
STARTS = threading.Lock()  # guards RUNNING while a command starts
ENDING = threading.Event()  # set: no further command starts


class Order(enum.Enum):
    """The order in which parts run (run_tests.py)."""

    first = "alone, before all others: it is short, or makes what they need"
    waiting = "mostly waits: for starts, for time limits, for other processes"
    computing = "keeps its cores busy"


class When(enum.Enum):
    """The form of the suite in which a part runs."""

    push = "before a push, all of it"
    split = "before a push, less the tests that pytest's marker ci leaves to CI"
    ci = "in CI only"
    night = "by night only"


class Form(enum.Enum):
    """A form of the suite: the tests that run in it, as pytest's expression of markers."""

    push = "not nightly and not ci"
    rest = "ci and not nightly"  # tests that only CI runs
    day = "not nightly"  # both
    night = ""

    def has(self, part: Part) -> bool:
        """Returns whether this form runs the part when the command line names no parts."""
        runs = {Form.push: (When.push, When.split), Form.rest: (When.split, When.ci)}
        return part.when in runs.get(self, tuple(When) if self is Form.night else (When.push, When.split, When.ci))


@dataclass
class Part:
    """A part of the suite.  Its limits are in seconds, for each command that it runs."""

    name: str
    what: str
    run: Callable[[Context], Tally]
    when: When = When.push
    order: Order = Order.waiting


@dataclass
class Context:
    """A part's context: the part, the environment for its commands, and the form of the suite."""

    part: Part
    env: dict[str, str]
    form: Form
    lines: list[str] = field(default_factory=list)  # lines to print about the part
    processor_seconds: float = 0.0  # of its commands that have ended, with the children they waited for
    records: pathlib.Path | None = None  # of the current run of pytest

    @property
    def marks(self) -> str:
        """The tests of the part that run: pytest's -m, "" for all."""
        whole = self.form is Form.rest and self.part.when is When.ci
        return Form.day.value if whole else self.form.value

    @property
    def nightly(self) -> bool:
        return self.form is Form.night

    def command(
        self, argv: Sequence[str], limit: float, env: dict[str, str] | None = None, quiet: bool = False
    ) -> tuple[int, str]:
        """(exit code, output) of a command; 124 after `limit` seconds.  Shows the end of its output if it failed."""
        LOGS.mkdir(parents=True, exist_ok=True)
        log = LOGS / f"{self.part.name}.log"
        with log.open("ab") as out:
            out.write(f"\n$ {' '.join(argv)}\n".encode())
            out.flush()
            begin = out.tell()
            with STARTS:
                if ENDING.is_set():
                    return 143, ""
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env={**self.env, **(env or {})},
                    start_new_session=True,
                )
                RUNNING.add(process)
            try:
                ended = has_ended(process, limit)
            finally:
                self.processor_seconds += kill_group(process)
                RUNNING.discard(process)
            code = process.returncode if ended else 124
        text = log.read_bytes()[begin:].decode(errors="replace")
        if code != 0 and not quiet:
            self.show("$ " + textwrap.shorten(" ".join(argv), SHOWN_COMMAND, placeholder=" …"), text)
            self.lines.append(f"   exit code {code}" + (f": no end within {limit:g} s" if code == 124 else ""))
        return code, text

    def show(self, what: str, text: str) -> None:
        """Keeps a failure and the end of its output; both are printed when the part ends."""
        self.lines += [f"   {what}", *("   | " + line for line in text.splitlines()[-TAIL_LINES:])]

    def good(self, name: str, argv: Sequence[str], limit: float = 120, env: dict[str, str] | None = None) -> Tally:
        """A test that is one command."""
        begin, used = time.monotonic(), self.processor_seconds
        code, _ = self.command(argv, limit, env)
        tally = check(name, code == 0, f"exit code {code}")
        tally.costs.append(Cost(name, time.monotonic() - begin, self.processor_seconds - used))
        return tally


def kill_all() -> None:
    """Ends the commands of all parts.  No further command starts, though lanes may go on for a moment."""
    with STARTS:
        ENDING.set()
    for process in RUNNING.copy():
        kill_group(process)


def has_ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Returns whether the process ends by itself within `limit` seconds. The caller must still wait for the process."""
    descriptor = os.pidfd_open(process.pid)
    try:
        return bool(select.select([descriptor], [], [], limit)[0])
    finally:
        os.close(descriptor)


def kill_group(process: subprocess.Popen[bytes]) -> float:
    """Ends the rest of a command's process group; returns the processor time of its waited-for processes, in seconds."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if process.returncode is not None:
        return 0.0
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime
