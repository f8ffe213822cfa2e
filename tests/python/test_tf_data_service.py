"""horovod.tensorflow.data: a compute job and a training job, two ranks each, share tf.data's service."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
from typing import Any

import pytest

from hvd._compute.interface_addresses import LOOPBACK, addresses_by_interface
from python.harness import environment, has, tensorflow

TRAINING = str(pathlib.Path(__file__).with_name("data_service_training.py"))
WORKER = ["-m", "horovod.tensorflow.data.compute_worker"]
SECONDS = 150  # of both jobs together: each imports TensorFlow
SQUARES = [x * x for x in range(20)]


def start(command: list[str], *options: str, ranks: int = 2) -> subprocess.Popen[str]:
    """A job."""
    if not has("tensorflow", "sklearn", interpreter=tensorflow()):
        pytest.skip(f"{tensorflow()} has no TensorFlow, or no scikit-learn")
    env = environment(TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0")
    line = [env.get("HVD_RUN_PROGRAM", "hvdrun"), "-np", str(ranks), *options, tensorflow(), *command]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(line, env=env, text=True, start_new_session=True, **pipes)


def end(job: subprocess.Popen[str], seconds: float) -> str:
    """The output, after the job's end or its limit."""
    try:
        return job.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGTERM)
        return job.communicate(timeout=20)[0] + "\n*** not finished ***"


def both_jobs(file: pathlib.Path, *arguments: str, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Runs a compute job and a training job.  Returns the data that each rank of the training has read."""
    compute = start([*WORKER, str(file), "--timeout", "60", *arguments], *options)
    training = start([TRAINING, str(file)])
    out = end(training, SECONDS)
    served = end(compute, 30)
    assert (training.returncode, compute.returncode) == (0, 0), f"training:\n{out}\ncompute:\n{served}"
    found = [json.loads(line.partition("#found ")[2]) for line in out.splitlines() if "#found " in line]
    return sorted(found, key=lambda each: each["rank"])


@pytest.mark.timeout(SECONDS + 60)
def test_dispatcher_in_the_compute_job(tmp_path: pathlib.Path) -> None:
    """Elements arrive as each mode promises."""
    first, second = both_jobs(tmp_path / "data.json")
    for rank in (first, second):
        assert sorted(rank["each"]) == SQUARES  # a pass of its own: each element once
        assert sorted(rank["whole"]) == sorted(2 * SQUARES)  # each of the two workers reads the whole dataset
        assert rank["turns"] == 20
        assert rank["accuracy"] > 0.75  # of the example
    assert sorted(first["shared"] + second["shared"]) == SQUARES  # one pass for both


@pytest.mark.ci
@pytest.mark.timeout(SECONDS + 60)
def test_dispatchers_in_the_training_job(tmp_path: pathlib.Path) -> None:
    """Each rank has its own dispatcher, at an address of the interface given by the compute job's --network-interfaces."""
    interface, (host, *_) = next(iter(addresses_by_interface().items()))
    options = () if interface == LOOPBACK else ("--network-interfaces", interface)
    name = "localhost" if interface == LOOPBACK else host
    ranks = both_jobs(tmp_path / "data.json", "--dispatchers", "2", "--dispatcher-side", "training", options=options)
    assert [sorted(rank["each"]) for rank in ranks] == [SQUARES, SQUARES]
    assert len({rank["address"] for rank in ranks}) == 2
    for rank in ranks:
        assert rank["address"].startswith(f"grpc://{name}:")
        assert "tf_data_service" in rank["refused"]
        assert rank["turns"] == 20  # it waits for no other reader of its dispatcher


@pytest.mark.ci
@pytest.mark.timeout(SECONDS + 60)
def test_dispatchers_that_do_not_come(tmp_path: pathlib.Path) -> None:
    """Without a training job the compute job ends with an error that names the missing dispatcher."""
    job = start([*WORKER, str(tmp_path / "data.json"), "--dispatcher-side", "training", "--timeout", "1"], ranks=1)
    out = end(job, SECONDS)
    assert job.returncode not in (0, None), out
    assert "dispatcher 0 did not come: look at the output of the job that has the dispatchers" in out
