"""Lines that a rank sends to the driver, and the driver's filter for all other lines."""

from __future__ import annotations

import re
import sys

# The prefix of such a line on stdout; hvdrun passes it through unchanged.
_MARK = "\N{SYMBOL FOR RECORD SEPARATOR}hvd-driver\N{SYMBOL FOR UNIT SEPARATOR}"
# hvdrun's "[3 host] " before a rank's line; hvdrun's and our own lines begin with a name and a colon.
_TAGGED = re.compile(r"^(\[\d[^\]]*\] )(.*)$", re.DOTALL)


def log_to_driver(message: str) -> None:
    """Shows a message at the driver (in the notebook), also with driver_log_verbosity="log_callback_only"."""
    for line in str(message).splitlines() or [""]:
        sys.stdout.write(f"{_MARK}{line}\n")
    sys.stdout.flush()


class Shown:
    """The driver's filter for hvdrun's output: all of it, or only the lines of log_to_driver and of hvdrun itself."""

    def __init__(self, everything: bool) -> None:
        self.everything = everything
        self.partial = ""

    def __call__(self, text: str, end: bool = False) -> str:
        """The part of the next piece of text to show; holds back an unfinished line."""
        lines = (self.partial + text).split("\n")
        self.partial = "" if end else lines.pop()
        shown = [line for line in map(self._line, lines) if line is not None]
        return "".join(line + "\n" for line in shown if line or not end)

    def _line(self, line: str) -> str | None:
        found = _TAGGED.match(line)
        tag, rest = found.groups() if found else ("", line)
        if rest.startswith(_MARK):
            return tag + rest.removeprefix(_MARK)
        return line if self.everything or not found else None
