#!/usr/bin/env python3
"""Measures a step's exchange on the host, without a GPU: NCCL groups, driver calls, wake-ups and processor time.

tests/gpu/costs_on_fakes.py [--build DIR] [--ranks N] [--rounds N] [--kinds] [--json] [ROW...]: the 161 gradients of
ResNet-50, by DistributedOptimizer's hooks, grouped and one by one; at once, and at the pace of a real backward pass (a
gradient each 100 us); and from the C interface (hvd-bench).  Rows: hooks, grouped, single, hooks-paced, single-paced, c.
--kinds: calls of each function of the driver and of NCCL.

Driver and NCCL are tests/gpu/fakes/nothing.cc, whose calls cost nothing.  In the paced rows NCCL's groups take time on the
device: --group-us each, and their bytes at --gb-s.  Torch's tensors are in host memory and are treated as the fake GPU's
(tests/python/ranks/fake_gpu.py), so the figures exclude torch's own CUDA calls. The figures are medians of rank 0; in paced
rows the wait for the next gradient is left out.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROWS = ("hooks", "grouped", "single", "hooks-paced", "single-paced", "c")
INSIDE = "HVD_COSTS_INSIDE"  # in the environment of the ranks that this program starts
TORCH = {"cuStreamSynchronize"}  # called by fake_gpu.py, not by the runtime


class Counters:
    """The counters of libfakenothing.so."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["HVD_CUDA_LIBRARY"])
        self.library.nothing_groups.restype = ctypes.c_long
        self.library.nothing_kind.restype = ctypes.c_char_p

    def now(self) -> Counter[str]:
        found: Counter[str] = Counter({"groups": self.library.nothing_groups()})
        calls = ctypes.c_long()
        for at in range(256):
            name = self.library.nothing_kind(at, ctypes.byref(calls))
            if name and name.decode() not in TORCH:
                found[name.decode()] += calls.value
        return found


def inside(given: argparse.Namespace) -> None:
    """Runs in a rank."""
    sys.path.insert(0, str(HERE))
    runpy.run_path(str(ROOT / "tests/python/ranks/fake_gpu.py"))
    from exchange_steps import costs

    import hvd.torch as hvd
    from hvd.torch._optimizer import registered_gradients as _registered_gradients

    _registered_gradients._owners = None  # otherwise gradients in host memory would be moved to registered memory

    hvd.init()
    counters = Counters()
    for row in given.rows:
        figures = costs(row, given.rounds, "cpu", counters.now)
        if hvd.rank() == 0:
            print(json.dumps(figures), flush=True)


# ---- outside


def environment(build: Path, library: Path, given: argparse.Namespace, paced: bool) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "HOROVOD_"))}
    env |= {
        "HVD_CUDA_LIBRARY": str(library),
        "HVD_NCCL_LIBRARY": str(library),
        INSIDE: "1",
        "OMP_NUM_THREADS": "1",
    }
    if (build / "src/python/hvd/_native.abi3.so").exists():
        env |= {"PYTHONPATH": str(build / "src/python"), "HVD_RANK_PROGRAM": str(build / "src/rank/hvdrank")}
    if paced:
        env |= {"NOTHING_GROUP_US": str(given.group_us), "NOTHING_GB_S": str(given.gb_s)}
    return env


def ran(command: list[str], ranks: int, env: dict[str, str]) -> str:
    start = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*start, *command], env=env, stdout=subprocess.PIPE, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"costs_on_fakes.py: {' '.join(command[:2])} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def from_c(program: Path, ranks: int, env: dict[str, str]) -> list[dict[str, Any]]:
    """hvd-bench's rows, in the form of the other rows."""
    (line,) = (x for x in ran([str(program), "--only", "gpu", "--json"], ranks, env).splitlines() if x.startswith("FIGURES"))
    rows: dict[str, dict[str, Any]] = {}
    for figure in json.loads(line.partition(" ")[2])["rows"]:
        what, _, part = figure["title"].rpartition(", ")
        row = rows.setdefault(what, {"row": "c: " + what.removeprefix("161 "), "caller_us": 0.0})
        if part in ("submit", "wait"):
            row["caller_us"] = round(row["caller_us"] + figure["hvd"]["median"], 1)
        elif part in ("others", "all"):  # with one rank, the others are the engine's thread
            row["engine_us" if part == "others" else "all_us"] = round(figure["hvd"]["median"], 1)
        elif part == "calls":
            row |= {"driver_calls": figure["number"], "driver_calls_per_tensor": round(figure["number"] / 161, 2)}
        elif part == "groups":
            row["groups"] = figure["number"]
    return list(rows.values())


COLUMNS = ("row", "groups", "driver_calls", "driver_calls_per_tensor", "wake_ups", "caller_us", "engine_us", "all_us")


def table(rows: list[dict[str, Any]], kinds: bool) -> str:
    heads = [name.replace("_per_tensor", "/tensor").replace("_", " ") for name in COLUMNS]
    lines = [heads] + [["-" if row.get(name) is None else f"{row[name]}" for name in COLUMNS] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    out = "".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n" for line in lines)
    for row in rows if kinds else []:
        called = ", ".join(f"{name} {n:g}" for name, n in sorted(row.get("kinds", {}).items(), key=lambda item: -item[1]))
        out += f"\n{row['row']}: {called}\n" if called else ""
    return out


def outside(given: argparse.Namespace) -> None:
    build = given.build.resolve()
    library = build / "tests/gpu/fakes/libfakenothing.so"
    if not library.exists():
        raise SystemExit(
            f"costs_on_fakes.py: {library} is not built (ninja -C {given.build} tests/gpu/fakes/libfakenothing.so)"
        )
    rows: list[dict[str, Any]] = []
    for paced in (False, True):
        wanted = [row for row in given.rows or ROWS if row.endswith("-paced") == paced and row != "c"]
        if wanted:
            command = [sys.executable, str(HERE / "costs_on_fakes.py"), "--rounds", str(given.rounds), *wanted]
            out = ran(command, given.ranks, environment(build, library, given, paced))
            rows += [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    bench = build / "tools/hvd-bench/hvd-bench"
    if "c" in (given.rows or ROWS) and bench.exists():
        rows += from_c(bench, given.ranks, environment(build, library, given, False))
    if given.json:
        print(json.dumps({"ranks": given.ranks, "rounds": given.rounds, "rows": rows}))
    else:
        print(table(rows, given.kinds), end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="a build folder with tests (default build)")
    parser.add_argument("--ranks", type=int, default=2, help="2; a single one needs no NCCL")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--group-us", type=float, default=20.0, help="paced rows: device time of a group (20)")
    parser.add_argument("--gb-s", type=float, default=100.0, help="paced rows: device's speed (100)")
    parser.add_argument("--kinds", action="store_true", help="calls of each function, below the table")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)}; all, if none is named")
    given = parser.parse_args()
    if unknown := set(given.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    inside(given) if INSIDE in os.environ else outside(given)


if __name__ == "__main__":
    main()
