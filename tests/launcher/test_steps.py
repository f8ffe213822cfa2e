"""The ranks' records of their steps: late input, waiting ranks, and other delays."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from support import hvdrun
from support.forms import few, measured

ROOT = pathlib.Path(__file__).resolve().parents[2]

BEGIN = """
import gc, json, os, sys, time
sys.path.insert(0, TESTS)
from support.steps import own_steps
import hvd.torch as hvd, torch
hvd.init()
rank = hvd.rank()
model = torch.nn.Linear(64, 64)
hvd.broadcast_parameters(model.state_dict(), 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 15
    def __getitem__(self, index):
        if SLOW_INPUT and rank == 1:
            time.sleep(0.02)
        return torch.randn(64)
SLOW_INPUT = False

def step(batch):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()

def show():
    print("steps", rank, json.dumps([s._asdict() for s in own_steps()]), flush=True)
"""
DISTRIBUTED = """
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
"""
DDP = """
import torch.distributed as dist
dist.init_process_group("hvd")
model = torch.nn.parallel.DistributedDataParallel(model)
"""
TRAIN = """
for batch in torch.utils.data.DataLoader(Data(), batch_size=1):
    step(batch)
show()
"""


def run(script: str, ranks: int = 2) -> dict[int, list[dict[str, int]]]:
    """The steps of each rank, without the first, which is the warm-up."""
    text = script.replace("TESTS", repr(str(ROOT / "tests")))
    done = subprocess.run(
        [hvdrun.program(), "-np", str(ranks), sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        env=hvdrun.environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line.split("steps ", 1)[1] for line in done.stdout.splitlines() if "steps " in line]
    return {int(rank): json.loads(steps)[1:] for rank, steps in (line.split(" ", 1) for line in shown)}


def mean(steps: list[dict[str, int]], what: str) -> float:
    """The mean of a value over the middle steps, in milliseconds."""
    values = sorted(s[what] for s in steps)
    return values[len(values) // 2] / 1e6


@pytest.mark.parametrize("how", few([DISTRIBUTED, DDP]), ids=["DistributedOptimizer", "DDP"])
@measured
def test_late_input_of_one_rank_is_waiting_on_the_other(how: str) -> None:
    pytest.importorskip("torch")
    steps = run(BEGIN + how + "SLOW_INPUT = True\n" + TRAIN)
    assert [s["number"] for s in steps[0]] == [s["number"] for s in steps[1]] == list(range(2, 16))
    assert mean(steps[1], "input_ns") >= 20
    assert mean(steps[0], "input_ns") < mean(steps[1], "input_ns") / 2
    assert mean(steps[0], "waited_ns") > 10
    assert mean(steps[1], "waited_ns") < mean(steps[0], "waited_ns") / 2
    for step in steps[0] + steps[1]:
        assert step["operations"] > 0 and step["operation_bytes"] > 64 * 64 * 4
        parts = ("input_ns", "waited_ns", "moved_ns", "collect_ns", "save_ns")
        assert sum(step[part] for part in parts) <= step["step_ns"]
        assert 0 < step["cpu_ns"] < 100 * step["step_ns"]


@measured
def test_how_long_a_loaders_workers_make_batches_is_told_although_nobody_waits_for_them() -> None:
    pytest.importorskip("torch")
    steps = run(
        BEGIN
        + DISTRIBUTED
        + """
SLOW_INPUT = True  # on rank 1, 20 ms a batch
for batch in torch.utils.data.DataLoader(Data(), num_workers=2 if rank == 1 else 0):
    step(batch)
    time.sleep(0.03)
show()
"""
    )
    assert 9 < mean(steps[1], "made_ns") < 25, steps[1]
    assert mean(steps[1], "input_ns") < 10, steps[1]
    assert mean(steps[0], "made_ns") == 0
    assert {s["loader"] for s in steps[0] + steps[1]} == {2}, "torch's"
    assert all(s["core"] >= 0 for s in steps[0] + steps[1])


@pytest.mark.ci
def test_a_checkpoint_counts_from_the_opening_of_its_file() -> None:
    """A large existing file is removed first."""
    pytest.importorskip("torch")
    steps = run(
        BEGIN
        + DISTRIBUTED
        + """
from torch import save
opened = torch.serialization._open_zipfile_writer_file.__init__
def slowly(self, *args):
    time.sleep(0.03)
    opened(self, *args)
torch.serialization._open_zipfile_writer_file.__init__ = slowly
for i in range(12):
    save(torch.ones(1), f"/tmp/opened.{os.getpid()}")
    step(torch.randn(64))
os.unlink(f"/tmp/opened.{os.getpid()}")
show()
"""
    )
    assert mean(steps[0], "save_ns") >= 30


def test_checkpoints_and_garbage_and_work_of_its_own() -> None:
    pytest.importorskip("torch")
    steps = run(
        BEGIN
        + DISTRIBUTED
        + """
for i in range(12):
    if rank == 0:
        torch.save(torch.ones(1 << 21), os.devnull)
        kept = [[] for _ in range(200000)]
        gc.collect()
    else:
        time.sleep(0.05)
    step(torch.randn(64))
show()
"""
    )
    assert mean(steps[0], "save_ns") > 0.5
    assert mean(steps[0], "collect_ns") > 0.5
    one = steps[1]
    assert mean(one, "save_ns") == 0
    work = [s["step_ns"] - s["input_ns"] - s["waited_ns"] - s["moved_ns"] - s["collect_ns"] - s["save_ns"] for s in one]
    assert sorted(work)[len(work) // 2] >= 50e6


def test_hooks_leave_a_program_as_it_was() -> None:
    pytest.importorskip("torch")
    steps = run(
        """
import gc, io, json, sys, torch
from torch.utils.data import dataloader
sys.modules["hvdrank_steps"].stop()  # hvdrun's hooks for programs without hvd; hvd.init() ends them too
before = [dataloader._BaseDataLoaderIter.__next__, torch.serialization._save, list(gc.callbacks)]
import hvd.torch as hvd
for _ in range(2):
    hvd.init()
    assert dataloader._BaseDataLoaderIter.__next__ is not before[0]
    assert len(gc.callbacks) == len(before[2]) + 1
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    torch.save(model, io.BytesIO())
    for batch in torch.utils.data.DataLoader(torch.randn(4, 2), num_workers=1):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    hvd.shutdown()
    assert [dataloader._BaseDataLoaderIter.__next__, torch.serialization._save, list(gc.callbacks)] == before
    assert not sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
print("steps 0 []")
""",
        1,
    )
    assert steps == {0: []}


@measured
def test_rounds_are_steps_where_nobody_tells() -> None:
    steps = run(
        """
import json, sys, time
import numpy as np
sys.path.insert(0, TESTS)
from support.steps import own_steps
import hvd.numpy as hvd
hvd.init()
for i in range(15):
    time.sleep(0.02 * hvd.rank())
    for name in ("a", "b"):
        hvd.allreduce(np.ones(10), name=name)
print("steps", hvd.rank(), json.dumps([s._asdict() for s in own_steps()]), flush=True)
"""
    )
    assert 10 <= len(steps[0]) == len(steps[1])
    assert [s["number"] for s in steps[0]] == [s["number"] for s in steps[1]]
    assert mean(steps[0], "waited_ns") > 15
    assert mean(steps[1], "waited_ns") < mean(steps[0], "waited_ns") / 2
