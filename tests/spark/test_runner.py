"""HorovodRunner and hvd.spark.run on a cluster of two executors on this machine."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


def test_rank_zeros_value_and_live_output(local: s.Driver) -> None:
    """np=2: rank 0's value, both ranks' streams separate and tagged, one line of progress."""
    answer = local.ask("runner", np=2)
    assert answer["value"]["size"] == 2 and answer["value"]["rank"] == 0, answer
    assert answer["value"]["sum"] == [3.0] * 3 and answer["value"]["lr"] == 0.1
    for rank in (0, 1):
        assert re.search(rf"^\[{rank} \S+\] out {rank}$", answer["out"], re.MULTILINE), answer["out"]
        assert re.search(rf"^\[{rank} \S+\] err {rank}$", answer["err"], re.MULTILINE), answer["err"]
        assert re.search(rf"^\[{rank} \S+\] loss of {rank}$", answer["out"], re.MULTILINE), answer["out"]
    assert "hvd.spark: 2 ranks of rank_value start on 127.0.0.1 ×2" in answer["err"]


def test_only_what_is_meant_for_the_driver(local: s.Driver) -> None:
    """driver_log_verbosity="log_callback_only"."""
    answer = local.ask("runner", np=2, verbosity="log_callback_only")
    assert re.sub(r"\[\d \S+\] ", "", answer["out"]).split("\n") in (
        ["loss of 0", "loss of 1", ""],
        ["loss of 1", "loss of 0", ""],
    )
    assert "err 0" not in answer["err"]


def test_all_slots_and_all_results(local: s.Driver) -> None:
    """np=0 takes every slot; hvd.spark.run returns all ranks' values in order."""
    assert local.good("runner", np=0)["size"] == 2
    assert [value["rank"] for value in local.good("all_results")] == [0, 1]


def test_a_marked_function(local: s.Driver) -> None:
    """All results in order; without Spark's GPUs, gpus=1 is refused before anything starts."""
    assert [value["rank"] for value in local.good("decorator")] == [0, 1]
    assert [value["lr"] for value in local.good("decorator", here=True)] == [0.4]
    for settings, words in (
        ({}, "gpus=1, and spark.task.resource.gpu.amount is not set"),
        ({"here": True}, "1 ranks need a GPU each, and the driver's host has 0"),
    ):
        assert words in local.ask("decorator", gpus=1, **settings)["error"]


def test_torch_distributor(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """A function on two tasks, and a script with its command line on the driver; use_gpu is on by default."""
    assert local.good("torch_distributor", num_processes=2, local_mode=False, use_gpu=False)["size"] == 2
    script = tmp_path / "train.py"
    script.write_text("import sys, os\nprint('script', __name__, sys.argv[1:], os.environ['WORLD_SIZE'])\n")
    answer = local.ask("torch_distributor", script=str(script), num_processes=2, use_gpu=False)
    assert answer["out"].count("script __main__ ['--lr', '0.5'] 2") == 2 and answer["value"] is None, answer
    assert "need a GPU each" in local.ask("torch_distributor")["error"]


@pytest.mark.nightly
def test_one_rank(local: s.Driver) -> None:
    """Fewer ranks than slots."""
    assert local.good("runner", np=1)["size"] == 1


def test_negative_np_runs_on_the_driver(local: s.Driver) -> None:
    """Like hvdrun, without Spark; the filter of lines works too."""
    answer = local.ask("runner", np=-2, verbosity="log_callback_only")
    assert answer["value"]["size"] == 2 and "loss of 1" in answer["out"] and "out 1" not in answer["out"], answer


def test_the_function_is_on_no_disk(local: s.Driver) -> None:
    """While it runs, so that nothing stays if session, executor or task disappear at once."""
    assert local.good("folders_while_ranks_run") == ["", ""]


@pytest.mark.nightly
def test_waiting_for_slots_is_said_of_who_waits(local: s.Driver) -> None:
    """hvd.spark reports the wait for the waiting job only, not for the running job."""
    answer = local.ask("one_behind_the_other", np=2)
    assert answer["value"] == {"first": 2, "second": 2}, answer
    assert answer["err"].count("waiting for 2 free slots; 2 tasks of other jobs run") == 1, answer["err"]


def test_manifest(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """The input of hvdrun --manifest."""
    made = local.good("manifest", path=str(tmp_path / "cluster.json"))
    assert made["hosts"] == [{"address": "127.0.0.1", "slots": 2}] and made["source"] == "spark"
    assert json.loads((tmp_path / "cluster.json").read_text()) == made


@pytest.mark.nightly
def test_a_module_brought_by_spark(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """sc.addPyFile reaches the ranks."""
    (tmp_path / "brought_along.py").write_text("WORD = 'here'\n")
    assert local.good("py_file", path=str(tmp_path / "brought_along.py"), np=2) == ["here", "here"]


@pytest.mark.nightly
def test_a_payload_of_200_megabytes(local: s.Driver) -> None:
    """Broadcast sends it once to hvdrun's host."""
    found = local.good("payload", megabytes=200, limit=110.0)
    print(f"200 MB: main after {found['to_main']:.1f} s, results after {found['all']:.1f} s")
    assert found["whole"] is True


@pytest.mark.nightly
def test_a_task_of_two_cores(tmp_path: pathlib.Path) -> None:
    """spark.task.cpus=2 halves the slots and gives a rank two threads."""
    driver = s.local_cluster(tmp_path, executors=1, cores=2, settings=("spark.task.cpus=2",))
    try:
        assert driver.good("threads_of_ranks") == ["2"]
        answer = driver.ask("too_few", np=2, timeout=0.5)
        assert "there is 1 slot on 1 executor (spark.task.cpus=2): use np=1" in answer["error"], answer
    finally:
        driver.close()
