"""The engine of tests/campaigns: each trial is judged once, also with parallel trials, and all are counted."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from campaigns import engine, equal_rank
from campaigns.engine import Campaign, Outcome, Trial

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES: list[str] = []


@contextlib.contextmanager
def place(options: argparse.Namespace) -> Iterator[str]:
    PLACES.append("begun")
    yield "a place"
    PLACES.append("ended")


def judge(trial: Trial, where: str, _: argparse.Namespace) -> list[Outcome]:
    assert where == "a place"
    if trial.case == "absent":
        return [Outcome(*trial, right=True, skipped="no such device")]
    return [Outcome(*trial, right=trial.seed != 3, about=f"seed {trial.seed}", figures={"s": float(trial.seed)})]


def trials(options: argparse.Namespace) -> list[Trial]:
    return [Trial(case, options.first + seed) for case in ("crash", "absent") for seed in range(options.seeds)]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5)


PLANTED = Campaign("about", trials, judge, add_options, place)


@pytest.mark.parametrize("side", ["1", "3"])
def test_each_trial_is_judged_once_and_in_order(side: str) -> None:
    PLACES.clear()
    outcomes = engine.run(PLANTED, "--side", side)
    assert [(outcome.case, outcome.seed) for outcome in outcomes] == trials(argparse.Namespace(first=0, seeds=5))
    assert PLACES.count("begun") == PLACES.count("ended") == int(side)


def test_the_table_counts() -> None:
    outcomes = engine.run(PLANTED)
    assert [outcome.seed for outcome in engine.wrong(outcomes)] == [3]
    assert engine.share_right(outcomes) == 0.8
    crash, absent, total = engine.table(outcomes).splitlines()[1:]
    assert crash.split() == ["crash", "4", "1", "2.000", "4.000"]
    assert "absent" in absent and "left out: no such device" in absent
    assert total == "4 of 5 right: 80.0 %"


def test_the_program_shows_each_outcome_and_fails_where_one_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert engine.main({"planted": PLANTED}, ["planted", "--seeds", "2", "--first", "2"]) == 1
    assert "WRONG    crash" in capsys.readouterr().out
    assert engine.main({"planted": PLANTED}, ["planted", "--seeds", "1"]) == 0
    assert engine.main({"planted": PLANTED}, ["other"]) == 2


def test_an_error_of_a_judge_is_no_outcome() -> None:
    def broken(*_: object) -> list[Outcome]:
        raise OSError("no such job")

    with pytest.raises(OSError, match="no such job"):
        engine.run(Campaign("about", trials, broken, add_options))


@pytest.mark.parametrize("name", ["causes", "kills", "faults", "slowness"])
def test_each_campaign_tells_its_command_line(name: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tests/campaigns/run"), name, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and f"tests/campaigns/run {name}" in done.stdout, done.stderr


def test_without_the_set_up_s_packages(tmp_path: pathlib.Path) -> None:
    """The program starts itself with the set-up's Python, or names the set-up."""
    run = ROOT / "tests/campaigns/run"
    done = subprocess.run([sys.executable, "-S", str(run), "hangs", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "tests/campaigns/run hangs" in done.stdout, done.stderr
    alone = tmp_path / "tests/campaigns/run"
    alone.parent.mkdir(parents=True)
    alone.write_text(run.read_text())
    done = subprocess.run([sys.executable, str(alone), "hangs", "--help"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("; scripts/setup --tests installs it\n"), done.stderr


def test_one_rank_of_a_world_dies(tmp_path: pathlib.Path) -> None:
    """Two deaths are due in the same step: the second one waits for the next world.  Otherwise both of two ranks may die."""
    deaths = [298, 309]
    of_ranks = [equal_rank.first_left(deaths, tmp_path) for _ in range(2)]  # at the begin of a world
    (tmp_path / "died.298").touch()
    assert of_ranks == [298, 298] and equal_rank.first_left(deaths, tmp_path) == 309
    (tmp_path / "died.309").touch()
    assert equal_rank.first_left(deaths, tmp_path) > 10**9
