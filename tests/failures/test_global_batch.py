"""keep_global_batch=True: losses and weights are bitwise those of a run without killed ranks."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from campaigns import fault_job
from failures.test_elastic import environment, job
from support import hvdrun
from support.forms import few

SCRIPT = pathlib.Path(__file__).with_name("elastic_batches.py")
STEPS = 2 * 14


def result(done: Any, steps: int = STEPS) -> dict[str, Any]:
    """Returns the result that rank 0 prints as JSON."""
    assert done.returncode == 0, done.stderr + done.stdout
    lines = [line for line in done.stdout.splitlines() if '{"losses"' in line]
    assert len(lines) == 1, done.stdout
    found: dict[str, Any] = json.loads(lines[0][lines[0].index("{") :])
    assert len(found["losses"]) == steps
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Four fixed ranks."""
    return result(job(tmp_path_factory.mktemp("undisturbed"), 4, script=SCRIPT))


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["losses"] == expected["losses"]
    assert found["weights"] == expected["weights"]


@pytest.mark.parametrize(
    "ranks", [pytest.param(n, marks=pytest.mark.ci if n == 5 else pytest.mark.nightly) for n in (1, 2, 3, 5)]
)
def test_four_shares_on_any_number_of_ranks(tmp_path: pathlib.Path, undisturbed: dict[str, Any], ranks: int) -> None:
    done = job(tmp_path, ranks, "--min-np", str(ranks), script=SCRIPT, BATCHES_SHARES="4")
    same(result(done), undisturbed)
    assert ("1 of them compute nothing" in done.stderr + done.stdout) == (ranks == 5)


# Step 13 is an epoch's last, with one sample for four shares.
KILLS = {
    "rank 0": [[5, [0]]],
    "4 to 3 to 2": [[4, [1]], [9, [2]]],
    "4 to 3 to 2 to 1": [[2, [3]], [4, [0]], [6, [1]]],
    "two at once in the last batch": [[13, [0, 2]]],
    "at the beginning of an epoch": [[14, [3]]],
}


@pytest.mark.parametrize("kills", few([pytest.param(kills, id=name) for name, kills in KILLS.items()], ["4 to 3 to 2"]))
def test_as_if_nobody_had_been_killed(tmp_path: pathlib.Path, undisturbed: dict[str, Any], kills: list[Any]) -> None:
    found = result(job(tmp_path, 4, "--min-np", "1", script=SCRIPT, ELASTIC_KILL=json.dumps(kills)))
    same(found, undisturbed)
    assert len(set(found["sizes"])) > 1, found["sizes"]


def test_shrinks_and_grows_back(tmp_path: pathlib.Path, undisturbed: dict[str, Any]) -> None:
    found = result(job(tmp_path, 4, "--min-np", "1", script=SCRIPT, ELASTIC_KILL="[[3, [0]], [5, [2]]]", ELASTIC_WANTED="4"))
    same(found, undisturbed)
    assert found["sizes"][-1] == 4 and min(found["sizes"]) <= 3


@pytest.mark.parametrize("seed", few(hvdrun.some_nightly(os.environ.get("ELASTIC_SEEDS"), 1, 50), 0))
def test_killed_at_random(tmp_path: pathlib.Path, undisturbed: dict[str, Any], seed: int) -> None:
    """Ranks are killed at random moments, also during an exchange of gradients or a recovery."""
    dice = random.Random(seed)
    env = environment(tmp_path, ELASTIC_PAUSE="0.02")
    with hvdrun.started("-np", "4", "--min-np", "1", "--python", sys.executable, str(SCRIPT), env=env) as process:
        steps = tmp_path / "steps"
        hvdrun.wait_until(lambda: len(fault_job.lines(steps)) > 2 or process.poll() is not None, "steps", 120)
        victims = fault_job.ranks_of(process.pid)
        dice.shuffle(victims)
        for victim in victims[: dice.choice([1, 2, 3])]:
            time.sleep(dice.uniform(0, 0.25))
            fault_job.send(victim, signal.SIGKILL)
        out, err = process.communicate(timeout=120 * hvdrun.patience())
    same(result(subprocess.CompletedProcess([], process.returncode, out, err)), undisturbed)
