"""The table of scripts/compare: figures by row and contender, the goal of each row, and how both are printed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

FAR_NS = 250  # a flag's round trip between the cores: below, they are near


@dataclass(frozen=True)
class Goal:
    """The goal of a row.  Our figure is at most `most` (absolute, in the row's unit), or `most` times a peer's."""

    most: float
    peer: str = ""  # "": absolute
    figure: str = "min"
    at_least: bool = False  # our figure must be at least this

    def words(self) -> str:
        """The goal as text for the table."""
        sign, figure = ("≥" if self.at_least else "≤"), ("" if self.figure == "min" else self.figure + " ")
        return f"{figure}{sign} {self.most:.3g}" + (f" × {self.peer}" if self.peer else "")


@dataclass
class Sample:
    """One round's figures of one contender."""

    near: bool
    figures: dict[str, float]  # min, mean, median, p90, p99


class Table:
    """Samples by row, contender and round."""

    def __init__(self) -> None:
        self.samples: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        self.goals: dict[str, list[Goal]] = defaultdict(list)
        self.units: dict[str, str] = {}
        self._news: dict[str, dict[str, str]] = {}  # since the last call of news()

    def add(self, row: str, contender: str, figures: dict[str, float], near: bool, unit: str = "µs") -> None:
        """One round's figures."""
        self.samples[row][contender].append(Sample(near, figures))
        self.units[row] = unit
        self._news.setdefault(row, {})[contender] = number(next(iter(figures.values())))

    def news(self) -> list[str]:
        """A line for each row that was measured since the last call, with each contender's first figure: its least time."""
        lines = [
            f"{row}: {', '.join(f'{who} {figure}' for who, figure in found.items())} {self.units[row]}"
            for row, found in self._news.items()
        ]
        self._news = {}
        return lines

    def goal(self, row: str, *goals: Goal) -> None:
        """Sets the row's goals."""
        self.goals[row] = list(goals)

    def value(self, row: str, contender: str, figure: str, near: bool | None = None) -> float | None:
        """The least over the rounds of `min`; the median over the rounds of any other figure."""
        found = [s.figures[figure] for s in self.samples[row][contender] if figure in s.figures and near in (None, s.near)]
        if not found:
            return None
        return min(found) if figure == "min" else statistics.median(found)

    def verdict(self, row: str, goal: Goal, near: bool | None = None) -> tuple[str, bool | None]:
        """("0.12", True): the ratio to the peer's figure, or our own figure, and whether it reaches the goal; None: unknown."""
        ours = self.value(row, "hvd", goal.figure, near)
        theirs = self.value(row, goal.peer, goal.figure, near) if goal.peer else 1.0
        if ours is None or theirs is None or theirs <= 0:
            return "", None
        share = ours / theirs
        return number(share), share >= goal.most if goal.at_least else share <= goal.most

    def lines(self) -> list[str]:
        """Markdown: a line per row and contender with its ratio to ours, then the row's goal."""
        out = [
            "| row | who | min | mean | median | p90 | p99 | unit | / hvd, near | / hvd, far | goal | reached |",
            "|---" * 12 + "|",
        ]
        for row, contenders in self.samples.items():
            first = True
            for who in sorted(contenders, key=lambda name: name != "hvd"):
                cells = [row if first else "", who]
                values = [self.value(row, who, figure) for figure in ("min", "mean", "median", "p90", "p99")]
                cells += ["" if value is None else number(value) for value in values]
                cells.append(self.units[row])
                cells += ["" if who == "hvd" else self._ratio(row, who, near) for near in (True, False)]
                goals = [g for g in self.goals[row] if g.peer == ("" if who == "hvd" else who)]
                cells.append(", ".join(goal.words() for goal in goals))
                cells.append(", ".join(self._reached(row, goal) for goal in goals))
                out.append("| " + " | ".join(cells) + " |")
                first = False
        return out

    def _ratio(self, row: str, who: str, near: bool) -> str:
        ours, theirs = self.value(row, "hvd", "min", near), self.value(row, who, "min", near)
        return "" if not ours or theirs is None else f"{theirs / ours:.2f}"

    def _reached(self, row: str, goal: Goal) -> str:
        share, good = self.verdict(row, goal)
        return "not measured" if good is None else f"{'yes' if good else 'NO'} ({share})"

    def as_json(self) -> dict[str, object]:
        """All samples."""
        return {
            row: {
                "unit": self.units[row],
                "contenders": {
                    who: [{"near": s.near, **s.figures} for s in samples] for who, samples in contenders.items() if samples
                },
                "goals": {f"{g.peer or 'absolute'} {g.words()}": self.verdict(row, g)[1] for g in self.goals[row]},
            }
            for row, contenders in self.samples.items()
        }


def number(value: float) -> str:
    """Three significant digits, never in powers of ten."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
