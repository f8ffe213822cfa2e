"""The C++ tests of a build folder: built, run by meson, and counted."""

from __future__ import annotations

import functools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from context import Context
from tally import Tally, from_meson


def run_meson_tests(
    context: Context,
    build: pathlib.Path,
    env: dict[str, str] | None = None,
    wrapper: Sequence[str] = (),
    only_units: bool = False,
    without: Sequence[str] = (),
) -> Tally:
    """Builds a configured folder and runs its tests, less those named in `without`.

    Those that are no unit tests run under MPI, whose own leaks cannot be told from ours: its modules are unloaded by then.
    """
    tests = build_tests(context, build, only_units, without)
    if tests is None:
        return Tally(failed=[f"{build}: does not build"])
    tally = Tally() if tests else Tally(failed=[f"{build}: has no tests"])
    units, others = [t for t in tests if is_unit(t)], [t for t in tests if not is_unit(t)]
    tally += run_together(context, build, units, env or {}, wrapper)
    tally += run_together(context, build, others, without_leaks(env or {}), wrapper)
    return tally


def run_together(
    context: Context, build: pathlib.Path, tests: list[dict[str, Any]], env: dict[str, str], wrapper: Sequence[str]
) -> Tally:
    """One call of meson: it runs two at a time, and alone what says that its threads or ranks need both cores."""
    if not tests:
        return Tally()
    base = "all-" + context.part.name
    for old in (build / "meson-logs").glob(base + "*"):
        old.unlink()
    argv = ["meson", "test", "-C", str(build), "--no-rebuild", "--num-processes=2", "--timeout-multiplier=3"]
    argv += [f"--logbase={base}", *(["--wrapper=" + " ".join(wrapper)] if wrapper else [])]
    _, said = context.command([*argv, *(test["name"] for test in tests)], 1200, env, quiet=True)
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
        for failure in told.failed:
            told.again[failure] = functools.partial(run_alone, context, [*argv, test["name"]], env)
        tally += told
    return tally


def run_alone(context: Context, argv: list[str], env: dict[str, str]) -> bool:
    """Whether a test that failed passes now."""
    return bool(context.command(argv, 600, env)[0] == 0)


def bare_name(name: str) -> str:
    """A test's own name in meson's log: "hvdrun:unit / base", and "unit - hvdrun:base" since 1.12, are base."""
    return name.rpartition(" / ")[2].rpartition(":")[2]


def is_unit(test: dict[str, Any]) -> bool:
    return any(name.endswith(":unit") for name in test["suite"])


def build_tests(
    context: Context, build: pathlib.Path, only_units: bool, without: Sequence[str] = ()
) -> list[dict[str, Any]] | None:
    """The tests of a configured folder, built at a low priority; None where that fails."""
    context.command(["ninja", "-C", str(build), "build.ninja"], 120)  # so that what follows sees the options as they are now
    _, listing = context.command(["meson", "introspect", "--tests", str(build)], 60)
    tests = [test for test in json.loads(listing) if (is_unit(test) or not only_units) and test["name"] not in without]
    targets = needed_by(context, build, tests) if only_units else []
    code, _ = context.command(["nice", "ninja", "-C", str(build), *targets], 1200)
    return tests if code == 0 else None


def needed_by(context: Context, build: pathlib.Path, tests: list[dict[str, Any]]) -> list[str]:
    """What these tests run or load, as ninja names it."""
    _, listing = context.command(["meson", "introspect", "--targets", str(build)], 60)
    files = {target["id"]: target["filename"][0] for target in json.loads(listing)}
    needed = {files[target] for test in tests for target in test["depends"]}
    return sorted(os.path.relpath(file, build.resolve()) for file in needed)


def without_leaks(env: dict[str, str]) -> dict[str, str]:
    """The sanitizer's options less the search for leaks."""
    return {name: value.replace("detect_leaks=1", "detect_leaks=0") for name, value in env.items()}
