"""Elastic jobs on one host: whoever is killed, whenever, the others go on, and every sample is seen."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import sys
import time
from collections import Counter
from typing import Any

import pytest

from support import hvdrun

RANK = pathlib.Path(__file__).with_name("elastic_rank.py")
SAMPLES, EPOCHS = 192, 2


def job(tmp_path: pathlib.Path, np: int, *options: str, script: pathlib.Path = RANK, **env: str) -> Any:
    return hvdrun.run(
        "-np",
        str(np),
        *options,
        sys.executable,
        str(script),
        env={"ELASTIC_FOLDER": str(tmp_path), **env},
        timeout=180,
    )


def result(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr + done.stdout
    lines = [line for line in done.stdout.splitlines() if '{"size"' in line]
    assert len(lines) == 1, done.stdout
    found = json.loads(lines[0][lines[0].index("{") :])
    for seen in found["seen"]:
        times = Counter(seen)
        assert set(times) == set(range(SAMPLES))
        # What is left is divided evenly, so up to size - 1 samples come twice after each change.
        assert sum(times.values()) - SAMPLES <= 3 * 4
    return found


@pytest.mark.parametrize("victims", [[0], [2], [0, 1], [1, 2]], ids=["rank 0", "the last", "the first two", "the last two"])
def test_survivors_go_on(tmp_path: pathlib.Path, victims: list[int]) -> None:
    done = job(tmp_path, 3, "--min-np", "1", ELASTIC_KILL=json.dumps([[5, victims]]))
    result(done)
    line = next(line for line in done.stderr.splitlines() if "epoch 2" in line)
    assert f"3 → {3 - len(victims)} ranks" in line, done.stderr
    assert "was killed by signal 9 (SIGKILL)" in line


def test_a_killed_rank_is_replaced(tmp_path: pathlib.Path) -> None:
    done = job(tmp_path, 3, "--min-np", "2", ELASTIC_KILL="[[5, [1]]]", ELASTIC_WANTED="3")
    assert result(done)["size"] == 3
    assert "2 → 3 ranks" in done.stderr


def test_two_faults_one_after_the_other(tmp_path: pathlib.Path) -> None:
    done = job(tmp_path, 4, "--min-np", "1", ELASTIC_KILL="[[5, [3]], [5, [0]]]")
    result(done)


def test_too_few_for_too_long(tmp_path: pathlib.Path) -> None:
    """No replacement comes: each dies at once."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal\nif os.environ['HVD_ELASTIC_LATE'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n" + RANK.read_text()
    )
    begun = time.monotonic()
    done = job(tmp_path, 2, "--min-np", "2", "--elastic-timeout", "3", script=script, ELASTIC_KILL="[[5, [1]]]")
    assert done.returncode == 137, done.stderr  # as the rank that was killed
    assert "1 rank left, --min-np asks for 2, and no more came in 3 s (--elastic-timeout)" in done.stderr
    assert time.monotonic() - begun < 60 * hvdrun.patience()


def test_the_same_error_again_and_again_ends_the_job(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(RANK.read_text().replace("die_if_told(state.step)", "assert state.step < 5 or hvd.rank() != 0, 'a bug'"))
    done = job(tmp_path, 3, "--min-np", "1", script=script)
    assert done.returncode == 1, done.stderr
    assert "the same error has ended a worker 3 times" in done.stderr
    assert "AssertionError: a bug" in done.stderr


def test_reset_limit(tmp_path: pathlib.Path) -> None:
    done = job(tmp_path, 3, "--min-np", "1", "--reset-limit", "1", ELASTIC_KILL="[[5, [2]], [8, [1]]]")
    assert done.returncode == 4, done.stderr
    assert "--reset-limit is 1" in done.stderr


def test_an_error_before_the_first_world_ends_the_job(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import nothing_of_that_name\n")
    done = job(tmp_path, 2, "--min-np", "1", script=script)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


def test_a_guard_is_killed(tmp_path: pathlib.Path) -> None:
    with hvdrun.started(
        "-np", "3", "--min-np", "2", sys.executable, str(RANK), env={"ELASTIC_FOLDER": str(tmp_path), "ELASTIC_PAUSE": "0.1"}
    ) as process:
        steps = tmp_path / "steps"
        hvdrun.wait_until(lambda: steps.exists() and len(steps.read_text().splitlines()) > 3, "steps")
        ranks = [pid for pid in os.listdir("/proc") if pid.isdigit() and is_rank(pid, process.pid)]
        assert len(ranks) == 3
        os.kill(parent(ranks[-1]), signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "is lost" in err


def parent(pid: str | int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_rank(pid: str, hvdrun_pid: int) -> bool:
    """Below daemon and guard of that hvdrun."""
    return parent(parent(parent(pid))) == hvdrun_pid and parent(parent(pid)) != 0


@pytest.mark.parametrize("seed", hvdrun.some_nightly(os.environ.get("ELASTIC_SEEDS"), 5, 40))
def test_kills_at_random(tmp_path: pathlib.Path, seed: int) -> None:
    """Ranks, at seeded moments: also while others recover, or are taken in."""
    dice = random.Random(seed)
    np = dice.choice([2, 3, 4])
    with hvdrun.started(
        "-np",
        str(np),
        "--min-np",
        "1",
        sys.executable,
        str(RANK),
        env={"ELASTIC_FOLDER": str(tmp_path), "ELASTIC_PAUSE": "0.05"},
    ) as process:
        steps = tmp_path / "steps"
        hvdrun.wait_until(lambda: steps.exists() and len(steps.read_text().splitlines()) > 2, "steps", 120)
        first = sorted(pid for pid in os.listdir("/proc") if pid.isdigit() and is_rank(pid, process.pid))
        spared = dice.choice(first)  # one lives that has the state
        for _ in range(dice.choice([1, 1, 2])):
            time.sleep(dice.uniform(0, 0.5))
            living = sorted(pid for pid in os.listdir("/proc") if pid.isdigit() and is_rank(pid, process.pid))
            living = [pid for pid in living if pid != spared]
            if living and process.poll() is None:
                os.kill(int(dice.choice(living)), signal.SIGKILL)
        out, err = process.communicate(timeout=180)
    done = type("Done", (), {"returncode": process.returncode, "stdout": out, "stderr": err})
    result(done)
