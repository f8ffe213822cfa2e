"""Scripts for torchrun, or for Horovod's own launcher, find the variables of those launchers."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from python.harness import has, tensorflow
from support import hvdrun
from support.forms import few

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
SHOW = "import json, os; print('#' + json.dumps(dict(os.environ)))"


def environments(*args: str, ranks: int = 2, env: dict[str, str] | None = None) -> list[dict[str, str]]:
    """Each rank's environment."""
    done = hvdrun.run("-np", str(ranks), *args, "--", sys.executable, "-c", SHOW, env=env)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line.partition("#")[2]) for line in done.stdout.splitlines()]
    return sorted(found, key=lambda variables: int(variables["HVD_RANK"]))


def test_torchruns() -> None:
    for rank, got in enumerate(both := environments()):
        for name, value in {
            "RANK": rank,
            "WORLD_SIZE": 2,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": 2,
            "GROUP_RANK": 0,
            "GROUP_WORLD_SIZE": 1,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": 2,
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RUN_ID": got["HVD_JOB"],
            "TORCHELASTIC_RESTART_COUNT": 0,
        }.items():
            assert got[name] == str(value), name
    assert both[0]["MASTER_PORT"] == both[1]["MASTER_PORT"]
    assert 1024 <= int(both[0]["MASTER_PORT"]) < 65536


def test_horovodruns() -> None:
    for rank, got in enumerate(environments()):
        assert [got["HOROVOD_" + name] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")] == [str(rank), "2"] * 2
        assert "HOROVOD_CONTROLLER" not in got
    assert environments("--gloo", ranks=1)[0]["HOROVOD_CONTROLLER"] == "gloo"


def test_where_ranks_meet_may_be_the_users_choice_and_their_numbers_not() -> None:
    env = hvdrun.environment(MASTER_ADDR="127.0.0.2", MASTER_PORT="29511", RANK="7", WORLD_SIZE="9")
    for rank, got in enumerate(environments(env=env)):
        assert (got["MASTER_ADDR"], got["MASTER_PORT"]) == ("127.0.0.2", "29511")
        assert (got["RANK"], got["WORLD_SIZE"]) == (str(rank), "2")


def test_a_job_inside_a_rank_of_torchrun_meets_at_a_place_of_its_own() -> None:
    outer = {"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "10.9.9.9", "MASTER_PORT": "1", "RANK": "3", "LOCAL_RANK": "3"}
    got = environments(ranks=1, env=hvdrun.environment(**outer))[0]
    assert got["MASTER_ADDR"] == "127.0.0.1" and got["MASTER_PORT"] != "1"
    assert got["TORCHELASTIC_RUN_ID"] == got["HVD_JOB"]


RECORD = """
import json, os, sys
if os.environ["RANK"] == "1":
    stack = {"py_callstack": "Traceback: seen\\nValueError: bad"}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": "ValueError: bad", "extraInfo": stack}}, file)
    os._exit(1)
"""


def test_what_torchs_record_wrote_is_told() -> None:
    done = hvdrun.run("-np", "2", "--", sys.executable, "-c", RECORD)
    assert done.returncode == 1
    assert "rank 1 on localhost ended with exit code 1 (ValueError: bad)" in done.stderr and "Traceback: seen" in done.stderr
    env = hvdrun.environment(TORCHELASTIC_ERROR_FILE="/dev/null")
    assert environments(ranks=1, env=env)[0]["TORCHELASTIC_ERROR_FILE"] == "/dev/null"
    done = hvdrun.run("-np", "2", "--", sys.executable, "-c", RECORD, env=env)
    assert done.returncode == 1 and "ValueError" not in done.stderr


@pytest.mark.parametrize("mpirun", few(hvdrun.mpiruns()))
def test_a_script_of_torch_distributed_runs_unchanged(mpirun: str) -> None:
    pytest.importorskip("torch")
    done = hvdrun.run("-np", "2", "--mpirun", mpirun, *hvdrun.python_args(), str(EXAMPLES / "torch_ddp.py"), "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert "[0 localhost] epoch 2/2  right " in done.stdout


SHARDED = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
rows = [p.to_local().shape[0] for p in model.parameters()]
print("rows", rows, torch.distributed.is_torchelastic_launched(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.ci
def test_fsdp2(tmp_path: pathlib.Path) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("fully_shard came with torch 2.6")
    (tmp_path / "sharded.py").write_text(SHARDED)
    done = hvdrun.run("-np", "2", *hvdrun.python_args(), "sharded.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[0 localhost] rows [4, 4, 1, 1] True" in done.stdout


JAX = """
import jax
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize()
from jax.experimental import multihost_utils
ranks = multihost_utils.process_allgather(jax.numpy.array([jax.process_index()])).ravel().tolist()
print("jax", jax.process_index(), jax.process_count(), ranks, flush=True)
"""
TENSORFLOW = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
@tf.function
def sum_of_ones():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
print("tensorflow", float(sum_of_ones()), strategy.num_replicas_in_sync, flush=True)
"""


@pytest.mark.parametrize("mpirun", few(hvdrun.mpiruns()))
def test_jax_finds_its_world(mpirun: str, tmp_path: pathlib.Path) -> None:
    """jax.distributed.initialize() without arguments."""
    (tmp_path / "script.py").write_text(JAX)
    done = hvdrun.run("-np", "2", "--mpirun", mpirun, "--", tensorflow_python("jax"), "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[1 localhost] jax 1 2 [0, 1]" in done.stdout


# In another order: a variable of hvdrun's must not replace an argument.
EXPLICIT = """
import os, sys
rank = 1 - int(os.environ["HVD_RANK"])
store, coordinator = (f"127.0.0.1:{port}" for port in sys.argv[1:])
if store != "127.0.0.1:0":
    import torch, torch.distributed as dist
    dist.init_process_group("gloo", init_method="tcp://" + store, rank=rank, world_size=2)
    ranks = [None, None]
    dist.all_gather_object(ranks, rank)
    print("torch", dist.get_rank(), ranks, flush=True)
    dist.destroy_process_group()
import jax
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize(coordinator, 2, rank, initialization_timeout=20)
print("jax", jax.process_index(), jax.process_count(), flush=True)
"""


@pytest.mark.ci
def test_arguments_win_against_variables(tmp_path: pathlib.Path) -> None:
    """Scripts give them when they are started by hand, or by torchrun."""
    (tmp_path / "script.py").write_text(EXPLICIT)
    python = tensorflow_python("jax")
    with held_ports(2) as (store, coordinator):
        store = store if has("torch", interpreter=python) else 0
        done = hvdrun.run("-np", "2", "--", python, "script.py", str(store), str(coordinator), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[0 localhost] jax 1 2" in done.stdout
    assert not store or "[0 localhost] torch 1 [0, 1]" in done.stdout


@pytest.mark.ci
def test_jaxs_arguments_in_an_elastic_job(tmp_path: pathlib.Path) -> None:
    """Ranks of elastic jobs have no variables of Open MPI, so JAX must use the script's explicit arguments only."""
    (tmp_path / "script.py").write_text(EXPLICIT)
    with held_ports(1) as (coordinator,):
        elastic = ("-np", "2", "--min-np", "2")
        python = tensorflow_python("jax")
        done = hvdrun.run(*elastic, "--", python, "script.py", "0", str(coordinator), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[0 localhost] jax 1 2" in done.stdout


@contextlib.contextmanager
def held_ports(number: int) -> Iterator[list[int]]:
    """Ports that the kernel gives to no other process meanwhile; a server with SO_REUSEADDR may take them."""
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
        yield [one.getsockname()[1] for one in sockets]


def test_jax_may_be_told_another_coordinator() -> None:
    got = environments(env=hvdrun.environment(JAX_COORDINATOR_ADDRESS="127.0.0.1:5001"))[0]
    assert got["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:5001" and "OMPI_MCA_orte_hnp_uri" not in got


@pytest.mark.ci
def test_tensorflow_finds_its_workers(tmp_path: pathlib.Path) -> None:
    assert "TF_CONFIG" not in environments(ranks=1)[0]
    (tmp_path / "script.py").write_text(TENSORFLOW)
    done = hvdrun.run("-np", "2", "--tf-config", "--", tensorflow_python("tensorflow"), "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[1 localhost] tensorflow 2.0 2" in done.stdout


def tensorflow_python(package: str) -> str:
    """The interpreter that has TensorFlow and JAX."""
    interpreter = tensorflow()
    if subprocess.run([interpreter, "-c", f"import {package}"], capture_output=True).returncode:
        pytest.skip(f"{interpreter} has no {package}")
    return interpreter
