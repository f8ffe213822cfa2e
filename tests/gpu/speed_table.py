"""Makes a table with goals from the rows that speed.py and hvd-bench have printed into a file: speed_table.py FILE"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

# Row, figure, description, relation, goal, number of ranks for the goal (0: any).
GOALS = [
    ("pack", "of_copy_bandwidth", "gather and scatter, share of the copy bandwidth", ">=", 0.8, 1),
    ("allreduce", "ratio", "fused allreduce, of the bare NCCL call plus two copies", "<=", 1.1, 0),
    ("cpu", "hooks_all_us", "processor time of a step's exchange by hooks, us", "<=", 350, 0),
    ("cpu", "grouped_all_us", "the same grouped, us", "<=", 250, 0),
    ("cpu", "hooks_driver_calls_per_tensor", "driver calls for each tensor, hooks", "<=", 2, 0),
    ("cpu", "single_driver_calls_per_tensor", "driver calls for each tensor, one by one", "<=", 4, 0),
    ("cpu", "hooks_paced_groups", "NCCL groups at backward's pace, hooks", "<=", 10, 0),
    ("cpu", "single_paced_groups", "NCCL groups at backward's pace, one by one", "<=", 17, 0),
    ("cpu", "hooks_paced_engine_us", "engine's thread at backward's pace, hooks, us", "<=", 800, 0),
    ("cpu", "single_paced_engine_us", "engine's thread at backward's pace, one by one, us", "<=", 800, 0),
    ("gpu", "161 grouped, all", "processor time from the C interface, grouped, us", "<=", 150, 0),
    ("group", "group_end_us", "host time of one NCCL group, us", "<=", 25, 2),
    ("resnet50", "hvd_of_ddp", "ResNet-50: exposed time, of DDP's", "<=", 0.5, 1),
    ("resnet50", "hvd_of_ddp_synced", "the same with a synchronise after each step", "<=", 0.5, 1),
    ("transformer", "hvd_of_ddp", "transformer: exposed time, of DDP's", "<=", 0.5, 1),
    ("captured", "exchange_whole_host_us", "captured step: host time of the exchange, us", "<=", 20, 1),
]
TAG = re.compile(r"^\s*(?:\[[^\]]*\](?:<\w+>)?:?\s?)?")  # hvdrun's, before each line of a rank


def rows_in(lines: list[str]) -> list[dict[str, Any]]:
    """speed.py's rows and hvd-bench's, with or without a rank's tag.  Skips other lines."""
    found: list[dict[str, Any]] = []
    for line in (TAG.sub("", line, count=1) for line in lines):
        try:
            if line.startswith("{") and "row" in (row := json.loads(line)):
                found.append(row)
            elif line.startswith("FIGURES {"):
                found.append(_of_bench(json.loads(line.partition(" ")[2])))
        except ValueError:  # an incomplete line
            continue
    return found


def _of_bench(said: dict[str, Any]) -> dict[str, Any]:
    figures = {row["title"]: row["hvd"]["median"] if "hvd" in row else row["number"] for row in said["rows"]}
    return {"row": "gpu", "ranks": said["ranks"], **figures}


def table(lines: list[str]) -> str:
    """Figures with goals; then each model's times by contender."""
    rows = rows_in(lines)
    out = "| what | ranks | measured | goal | met |\n|---|---|---|---|---|\n"
    missing = []
    for name, figure, what, relation, goal, ranks in GOALS:
        found = [row for row in rows if row["row"] == name and figure in row]
        if not found:
            missing.append(f"{name} {figure}")
        for row in sorted(found, key=lambda row: row["ranks"]):
            met = row[figure] >= goal if relation == ">=" else row[figure] <= goal
            verdict = ("yes" if met else "NO") if ranks in (0, row["ranks"]) else f"for {ranks} only"
            out += f"| {what} | {row['ranks']} | {row[figure]:g} | {relation} {goal:g} | {verdict} |\n"
    for row in rows:
        if row["row"] in ("resnet50", "transformer"):
            out += "\n" + _contenders(row)
    for row in rows:
        for one, why in row.get("failed", {}).items():
            out += f"\n{row['row']}: {one}: {why}\n"
    return out + (f"\nnot measured: {', '.join(missing)}\n" if missing else "")


COLUMNS = ("ms", "least_ms", "synced_ms", "cpu_ms", "exposed_ms", "exposed_least_ms", "of_ddp", "of_ddp_least", "of_ddp_synced")


def _contenders(row: dict[str, Any]) -> str:
    out = f"| {row['row']}, {row['ranks']} ranks | {' | '.join(name.replace('_', ' ') for name in COLUMNS)} |\n"
    out += "|---" * (len(COLUMNS) + 1) + "|\n"
    for kind in ("alone", "hvd", "hvd_groups8", "ddp", "ddp_hook"):
        if f"{kind}_ms" in row:
            out += f"| {kind} | {' | '.join(_cell(row.get(f'{kind}_{name}')) for name in COLUMNS)} |\n"
    return out


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    print(table(Path(sys.argv[1]).read_text().splitlines()), end="")
