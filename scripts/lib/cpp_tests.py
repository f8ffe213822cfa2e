"""Builds and runs the C++ tests of a build folder with meson, and counts them."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from context import Context
from cost import MARK
from tally import Cost, Tally, failure, from_meson


def run_meson_tests(
    context: Context,
    build: pathlib.Path,
    env: dict[str, str] | None = None,
    wrapper: Sequence[str] = (),
    which: str = "all",
    without: Sequence[str] = (),
) -> Tally:
    """Builds a configured folder and runs its tests ("all", the "units" or the "others"), without those named in `without`.

    Tests other than unit tests run under MPI. MPI's own leaks cannot be distinguished from ours, because its modules are
    unloaded by then.
    """
    tests = build_tests(context, build, which, without)
    if tests is None:
        return failure(str(build), "does not build")
    tally = Tally() if tests else failure(str(build), "has no tests")
    units, others = [t for t in tests if is_unit(t)], [t for t in tests if not is_unit(t)]
    tally += run_together(context, build, units, env or {}, wrapper)
    tally += run_together(context, build, others, without_leaks(env or {}), wrapper)
    return tally


def run_together(
    context: Context, build: pathlib.Path, tests: list[dict[str, Any]], env: dict[str, str], wrapper: Sequence[str]
) -> Tally:
    """Runs all tests in one call of meson, two at a time.  Tests whose threads or ranks need both cores run alone."""
    if not tests:
        return Tally()
    wrapper = [sys.executable, str(pathlib.Path(__file__).with_name("cost.py")), *wrapper]
    base = "all-" + context.part.name
    for old in (build / "meson-logs").glob(base + "*"):
        old.unlink()
    argv = ["meson", "test", "-C", str(build), "--no-rebuild", "--num-processes=2", "--timeout-multiplier=3"]
    argv += [f"--logbase={base}", "--wrapper=" + shlex.join(wrapper)]
    _, said = context.command([*argv, *(test["name"] for test in tests)], 2400, env, quiet=True)
    records = {}
    for log in (build / "meson-logs").glob(base + "*.json"):
        for record in map(json.loads, log.read_text().splitlines()):
            records[bare_name(record["name"])] = record
    if not records:
        context.show("$ " + " ".join(argv), said)
    tally = Tally()
    for test in tests:
        record = records.get(test["name"], {"result": "no result", "stdout": "", "returncode": 124})
        good = record["result"] == "OK"
        if not good:
            context.show(f"{build.name}/{test['name']}: {record['result']}", record["stdout"] + record.get("stderr", ""))
        told = from_meson(record["stdout"], f"{build.name}/{test['name']}", 0 if good else record["returncode"] or 124)
        for one in told.failed:
            one.run_alone = functools.partial(run_alone, context, [*argv, test["name"]], env)
        tally += told
        tally.costs.append(cost_of(f"{build.name}/{test['name']}", record))
    return tally


def cost_of(name: str, record: dict[str, Any]) -> Cost:
    """The cost of a test, from meson's record and from cost.py's line in its output."""
    said = re.findall(MARK + r"([\d.]+)", record["stdout"] + record.get("stderr", ""))
    return Cost(name, record.get("duration", 0.0), float(said[-1]) if said else None)


def run_alone(context: Context, argv: list[str], env: dict[str, str]) -> bool:
    """Runs a failed test alone, and returns whether it passes."""
    return bool(context.command(argv, 600, env)[0] == 0)


def bare_name(name: str) -> str:
    """A test's own name in meson's log: "hvdrun:unit / base", and "unit - hvdrun:base" since 1.12, are base."""
    return name.rpartition(" / ")[2].rpartition(":")[2]


def is_unit(test: dict[str, Any]) -> bool:
    return any(name.endswith(":unit") for name in test["suite"])


def build_tests(context: Context, build: pathlib.Path, which: str, without: Sequence[str] = ()) -> list[dict[str, Any]] | None:
    """Builds the tests of a configured folder at low priority. Returns the tests; None: the build failed."""
    tests = [test for test in introspect(context, build, "tests") if test["name"] not in without]
    if which == "all":
        targets = []
    else:
        tests = [test for test in tests if is_unit(test) == (which == "units")]
        needed = {target for test in tests for target in test["depends"]}
        targets = [target for target in introspect(context, build, "targets") if target["id"] in needed]
    return tests if build_targets(context, build, targets) else None


def build_programs(context: Context, build: pathlib.Path) -> bool:
    """Builds all programs except those that only unit tests run."""
    tests = introspect(context, build, "tests")
    units = {target for test in tests if is_unit(test) for target in test["depends"]}
    units -= {target for test in tests if not is_unit(test) for target in test["depends"]}
    targets = [
        target
        for target in introspect(context, build, "targets")
        if target["build_by_default"] and not (target["type"] == "executable" and target["id"] in units)
    ]
    return build_targets(context, build, [target for target in targets if target["type"] != "static library"])


def introspect(context: Context, build: pathlib.Path, what: str) -> list[dict[str, Any]]:
    """Meson's data on a configured folder's tests or targets, with the current options."""
    context.command(["ninja", "-C", str(build), "build.ninja"], 120)
    _, listing = context.command(["meson", "introspect", f"--{what}", str(build)], 60)
    return list(json.loads(listing))


def build_targets(context: Context, build: pathlib.Path, targets: Sequence[dict[str, Any]]) -> bool:
    """Builds these targets; all of the folder if there are none."""
    files = sorted(os.path.relpath(target["filename"][0], build.resolve()) for target in targets)
    code, _ = context.command(["nice", "ninja", "-C", str(build), *files], 1200)
    return bool(code == 0)


def without_leaks(env: dict[str, str]) -> dict[str, str]:
    """The sanitizer's options without the search for leaks."""
    return {name: value.replace("detect_leaks=1", "detect_leaks=0") for name, value in env.items()}
