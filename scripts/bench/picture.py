"""Makes the table of speeds and its picture from the results of scripts/compare.

scripts/compare --rounds 5 --only small sizes torch train launch --json > docs/speed.json
scripts/bench/picture.py              writes docs/speed.md and docs/speed.svg
scripts/bench/picture.py --check      writes nothing; exit code 1 if one of them does not match docs/speed.json
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/speed.json"
COMMAND = "scripts/compare --rounds 5 --only small sizes torch train launch --json"

# A row of scripts/compare, its name in the table, and the divisor for the table's unit.
ROWS = (
    ("4 B", "allreduce of 4 B, from C", 1.0, "µs"),
    ("1 MiB", "1 MiB, from C", 1.0, "µs"),
    ("64 MiB, in place", "64 MiB, from C", 1e3, "ms"),
    ("64 MiB, registered", "64 MiB, from C, in registered memory", 1e3, "ms"),
    ("4 B from torch", "allreduce of 4 B, from torch", 1.0, "µs"),
    ("1 MiB from torch", "1 MiB, from torch", 1.0, "µs"),
    ("64 MiB from torch", "64 MiB, from torch", 1e3, "ms"),
    ("train.py, a step", "a training step, 16.8 M parameters", 1e3, "ms"),
    ("launch of `true`", "launch of `true`", 1.0, "ms"),
)
WHO = {"hvd": "hvdrun", "MPI": "MPI", "gloo": "torch, gloo", "DDP": "torch, DDP", "Horovod": "Horovod"}
COLOURS = {"hvd": "#2a6fdb", "MPI": "#8a8f98", "gloo": "#c98b2b", "DDP": "#9b6bc4", "Horovod": "#b5525c"}


class Figures:
    """The least time of each row and contender, over all rounds."""

    def __init__(self, path: pathlib.Path) -> None:
        measured = json.loads(path.read_text())
        self.rows: dict[str, Any] = measured["rows"]
        self.rounds = max(len(s) for row in self.rows.values() for s in row["contenders"].values())
        self.who = [who for who in WHO if any(who in row["contenders"] for row in self.rows.values())]

    def least(self, row: str, who: str) -> float | None:
        """Returns the least time of a row in the row's unit; None: not measured."""
        samples = self.rows.get(row, {"contenders": {}})["contenders"].get(who, [])
        return min((sample["min"] for sample in samples), default=None)


def number(value: float) -> str:
    """Two or three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def table(figures: Figures) -> str:
    """The table in Markdown."""
    lines = ["| least time, two ranks on one host | " + " | ".join(WHO[who] for who in figures.who) + " |"]
    lines.append("|---" * (1 + len(figures.who)) + "|")
    for row, title, divisor, unit in ROWS:
        values = [figures.least(row, who) for who in figures.who]
        if any(value is not None for value in values):
            cells = ["" if value is None else f"{number(value / divisor)} {unit}" for value in values]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def picture(figures: Figures) -> str:
    """SVG: for each row a bar per contender, as long as its time is a multiple of hvdrun's."""
    groups = [(row, title) for row, title, _, _ in ROWS if figures.least(row, "hvd")]
    most = 6.0  # longer bars are cut, and show their length
    left, width, bar, gap = 275, 400, 12, 12
    y, parts = 34, []
    for row, title in groups:
        ours = figures.least(row, "hvd") or 1.0
        found = [(who, value / ours) for who in figures.who if (value := figures.least(row, who)) is not None]
        middle = y + len(found) * bar / 2 + 4
        parts.append(f'<text x="{left - 10}" y="{middle:.0f}" text-anchor="end">{escape(title.replace("`", ""))}</text>')
        for who, share in found:
            length = width * min(share, most) / most
            label = f"{WHO[who]} {number(share)} ×" if who != "hvd" else "hvdrun"
            parts.append(
                f'<rect x="{left}" y="{y}" width="{length:.0f}" height="{bar - 2}" fill="{COLOURS[who]}" rx="2"/>'
                f'<text class="s" x="{left + length + 6:.0f}" y="{y + 9}">{escape(label)}</text>'
            )
            y += bar
        y += gap
    style = "text{font:13px sans-serif;fill:#7b828c}.s{font-size:10px}"  # readable on white and on black
    head = '<text x="10" y="18">Time as a multiple of hvdrun’s: shorter is better; bars end at 6 ×</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 120} {y}" role="img" '
        f'aria-label="Time as a multiple of hvdrun’s"><style>{style}</style>{head}\n' + "\n".join(parts) + "\n</svg>\n"
    )


def words(figures: Figures) -> str:
    """The page."""
    return (
        f"{table(figures)}\n"
        f"Each time is the least of {figures.rounds} round{'s' * (figures.rounds > 1)} on two virtual cores.\n"
        f"`{COMMAND}` repeats the measurement;\n"
        f"`--horovod VENV` adds Horovod. `docs/gpus.md` has times on a GPU.\n\n"
        f"![Time as a multiple of hvdrun's](speed.svg)\n"
    )


def pages(figures: Figures) -> dict[pathlib.Path, str]:
    """Every file that is made from the figures, and its text."""
    return {
        ROOT / "docs/speed.md": words(figures),
        ROOT / "docs/speed.svg": picture(figures),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = 0
    for path, text in pages(Figures(FIGURES)).items():
        if path.exists() and path.read_text() == text:
            continue
        if options.check:
            print(f"{path.relative_to(ROOT)} is not made of docs/speed.json; run scripts/bench/picture.py", file=sys.stderr)
            stale = 1
        else:
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
