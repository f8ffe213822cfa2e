"""Records a program's output in a terminal, and makes an SVG that replays the recording once."""

from __future__ import annotations

import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from html import escape

COLUMNS, ROWS = 100, 40
CELL, LINE = 7.8, 18.0  # points
PIECE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")
COLOURS = {31: "#f38ba8", 32: "#a6e3a1", 33: "#f9e2af", 34: "#89b4fa", 35: "#cba6f7", 36: "#94e2d5"}
Cell = tuple[str, int]  # a character and the number of its colour; 1 is bold, 0 plain
Row = list[Cell]


def record(argv: Sequence[str], folder: pathlib.Path, env: Mapping[str, str], limit: float) -> list[tuple[float, str]]:
    """(seconds since the start, output) of a program in a terminal of its own. Raises TimeoutError after `limit` seconds."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    begin = time.monotonic()
    with subprocess.Popen(argv, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as job:
        os.close(theirs)
        shown = []
        try:
            while True:
                if not select.select([ours], [], [], max(0.0, begin + limit - time.monotonic()))[0]:
                    job.kill()
                    raise TimeoutError(f"{argv[0]} did not end within {limit:g} s")
                data = os.read(ours, 1 << 16)
                shown.append((time.monotonic() - begin, data.decode(errors="replace")))
        except OSError:  # the last writer has closed the terminal
            pass
        finally:
            os.close(ours)
    return shown


def without_pauses(shown: Sequence[tuple[float, str]], longest: float) -> list[tuple[float, str]]:
    """The recording, with no pause above `longest` seconds."""
    made, now, before = [], 0.0, 0.0
    for when, text in shown:
        now += min(longest, when - before)
        before = when
        made.append((now, text))
    return made


class Screen:
    """The rows that a terminal shows: text, colours, and the movements that hvdrun's live lines use."""

    def __init__(self) -> None:
        self.rows: list[Row] = [[]]
        self._at, self._column, self._colour = 0, 0, 0

    def feed(self, text: str) -> None:
        for match in PIECE.finditer(text):
            if match[2]:
                self._control(match[2], [int(word) for word in match[1].split(";") if word])
            elif match[0] == "\r":
                self._column = 0
            elif match[0] == "\n":
                self._at, self._column = self._at + 1, 0
                self.rows += [[] for _ in range(self._at + 1 - len(self.rows))]
            else:
                self._write(match[0])

    def _control(self, letter: str, numbers: list[int]) -> None:
        if letter == "m":
            for number in numbers or [0]:
                self._colour = number if number in COLOURS or number <= 1 else self._colour
        elif letter == "A":
            self._at = max(0, self._at - (numbers or [1])[0])
        elif letter in "JK":
            del self.rows[self._at][self._column :]
            if letter == "J":
                del self.rows[self._at + 1 :]

    def _write(self, text: str) -> None:
        row = self.rows[self._at]
        row += [(" ", 0)] * (self._column - len(row))
        row[self._column : self._column + len(text)] = [(letter, self._colour) for letter in text]
        self._column += len(text)

    def text(self) -> str:
        return "\n".join("".join(letter for letter, _ in row).rstrip() for row in self.rows).strip("\n") + "\n"


def drawn(row: Row) -> str:
    """The row as SVG text."""
    spans, at = [], 0
    while at < len(row):
        colour = row[at][1]
        end = next((i for i in range(at, len(row)) if row[i][1] != colour), len(row))
        words = escape("".join(letter for letter, _ in row[at:end]), quote=False)
        style = ' class="b"' if colour == 1 else f' fill="{COLOURS[colour]}"' if colour else ""
        spans.append(f"<tspan{style}>{words}</tspan>" if style else words)
        at = end
    return "".join(spans)


def played(shown: Sequence[tuple[float, str]], label: str) -> str:
    """An SVG that plays the recording once. Viewers without animation show the last picture."""
    screen = Screen()
    begun: dict[int, tuple[str, float]] = {}  # row → its text, and the time at which the text appeared
    parts: list[tuple[int, str, float, float | None]] = []
    for when, text in [*shown, (shown[-1][0], "")]:
        screen.feed(text)
        now = {number: line for number, row in enumerate(screen.rows) if (line := drawn(row).rstrip())}
        for number in {*begun, *now}:
            line, since = begun.get(number, ("", 0.0))
            if now.get(number, "") == line:
                continue
            if line:
                parts.append((number, line, since, when))
            begun[number] = (now.get(number, ""), when)
    parts += [(number, line, since, None) for number, (line, since) in begun.items() if line]
    rows = 1 + max(number for number, _, _, end in parts if end is None)
    lines = []
    for number, line, since, end in sorted(parts, key=lambda part: (part[2], part[0])):
        if number >= rows:
            continue
        place = f'x="14" y="{30 + LINE * number:.0f}"'
        if end is None:
            hidden = f'<set attributeName="visibility" to="hidden" begin="0s" dur="{since:.2f}s"/>' if since > 0 else ""
            lines.append(f"<text {place}>{hidden}{line}</text>")
        elif end - since >= 0.02:
            seen = f'<set attributeName="visibility" to="visible" begin="{since:.2f}s" dur="{end - since:.2f}s"/>'
            lines.append(f'<text {place} visibility="hidden">{seen}{line}</text>')
    width, height = 28 + CELL * COLUMNS, 26 + LINE * rows
    style = "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#cdd6f4;white-space:pre}.b{font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}"><style>{style}</style>'
        f'<rect width="100%" height="100%" rx="8" fill="#1e1e2e"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )
