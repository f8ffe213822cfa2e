"""Steps of torch programs that do not import hvd, and their cost (src/rank/python/start/hvdrank_steps.py)."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

from support import hvdrun
from support.forms import measured

pytest.importorskip("torch")

# Prints the step records that the rank has made, for each kind of training loop. The program does not import hvd.
PROGRAM = f"""
import sys, time
sys.path.append({str(pathlib.Path(__file__).parents[1])!r})
import torch
from torch import distributed
from support.steps import own_steps
distributed.init_process_group("gloo")
rank = distributed.get_rank()
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 14
    def __getitem__(self, i):
        time.sleep(0.02)
        return torch.ones(8)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
"""
TRAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with model.no_sync():
    for _ in range(30): model(torch.ones(8)).sum().backward()  # these end no step: they belong to the first one
for batch in torch.utils.data.DataLoader(Rows()):
    time.sleep(0.05 * rank)
    model(batch).sum().backward()
    distributed.all_reduce(batch)
    optimizer.step()
    torch.save(batch, sys.argv[1]) if rank == 0 else None
"""
BY_HAND = """
for i in range(40):
    time.sleep(0.012)
    model(torch.ones(8)).sum().backward()
    with torch.no_grad():
        for p in model.parameters(): p -= 0.1 * p.grad
"""
SHOW = """
import json
steps = [s._asdict() for s in own_steps()]
assert not any(name.partition(".")[0] == "hvd" for name in sys.modules), "hvd"
leaves = [torch.ones(1, requires_grad=True) for _ in range(2)]
torch.autograd.backward(leaf.sum() for leaf in leaves)  # an iterator, which nobody else may read
assert all(leaf.grad is not None for leaf in leaves)
print("STEPS", json.dumps(steps), flush=True)
distributed.barrier()
"""


def run(program: str, tmp_path: pathlib.Path) -> tuple[list[list[dict[str, int]]], dict[str, object]]:
    """The records of both ranks, and hvdrun's report."""
    report = tmp_path / "report.json"
    options = ["-np", "2", "--report-filename", str(report), "--no-report"]
    done = hvdrun.run(*options, sys.executable, "-c", PROGRAM + program + SHOW, str(tmp_path / "x.pt"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told: dict[int, list[dict[str, int]]] = {}
    for line in done.stdout.splitlines():
        where, _, text = line.partition("STEPS ")
        if text:
            told[int(where.split()[0].strip("["))] = json.loads(text)
    return [told[0], told[1]], json.loads(report.read_text())


def mean(steps: list[dict[str, int]], name: str) -> float:
    """Milliseconds a step, without the first."""
    return sum(step[name] for step in steps[1:]) / len(steps[1:]) / 1e6


@measured
def test_a_loop_with_an_optimizer(tmp_path: pathlib.Path) -> None:
    """Input, waiting for the late rank in DDP and elsewhere, and torch.save; the report names the late rank."""
    steps, report = run(TRAIN, tmp_path)
    assert [s["number"] for s in steps[0]] == list(range(1, 15))
    assert mean(steps[0], "input_ns") >= 20
    assert mean(steps[0], "waited_ns") > 30
    assert mean(steps[1], "waited_ns") < mean(steps[0], "waited_ns") / 2
    assert mean(steps[0], "save_ns") > 0
    assert mean(steps[1], "save_ns") == 0
    for step in steps[0] + steps[1]:
        assert step["operations"] == 1  # DDP's operations are not counted
        assert 0 < step["cpu_ns"] < 100 * step["step_ns"]
        assert step["loader"] == 2
        assert 0 < step["longest_ns"] <= step["step_ns"]
    findings = report["findings"]
    assert isinstance(findings, list)
    assert any(f["cause"] == "STRAGGLER" and f["ranks"] == [1] for f in findings), findings


def test_a_loop_without_an_optimizer(tmp_path: pathlib.Path) -> None:
    """The end of backward() ends a step, once there have been 20 of them."""
    steps, report = run(BY_HAND, tmp_path)
    assert sum(s["step_ns"] >= 12_000_000 for s in steps[0]) >= 15
    assert 15 <= int(str(report["steps"])) <= 21


def test_a_signal_during_a_collection_is_not_lost() -> None:
    """The collector drops what its callbacks raise, so the recorder's has no bytecode, which would run a handler."""
    program = f"""
import signal, sys, time
sys.path.append({str(pathlib.Path(__file__).parents[1])!r})
import torch
from support.steps import own_steps
class Now(Exception): pass
class Node: pass
def now(*_): raise Now
signal.signal(signal.SIGALRM, now)
optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
came = 0
for _ in range(100):
    optimizer.step()
    try:
        end = time.monotonic() + 0.1
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while time.monotonic() < end:
            node = Node()
            node.node = [node] * 10
    except Now:
        came += 1
steps = own_steps()
assert came == 100, came
assert 0 < sum(s.collect_ns for s in steps) < sum(s.step_ns for s in steps), steps
"""
    done = hvdrun.run("-np", "1", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_fork_records_nothing() -> None:
    """The steps of a rank are those of its first process, also where a child imports torch first."""
    program = """
import os, sys
if os.fork() == 0:
    import torch.optim, torch.utils.data
    os._exit("hvdrank_steps" in sys.modules)
assert os.wait()[1] == 0
import torch.optim
assert "hvdrank_steps" in sys.modules
"""
    done = hvdrun.run("-np", "1", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr


def test_hooks_during_an_import() -> None:
    """Hooks of DataLoader are installed while torch.utils.data is being imported, so they must not use it."""
    program = """
import sys, torch.utils.data
assert "torch.utils.data._utils.fetch._MapDatasetFetcher.fetch" in sys.modules["hvdrank_step_hooks"]._installed
"""
    done = hvdrun.run("-np", "1", "--log-level", "DEBUG", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert "steps are not recorded" not in done.stderr, done.stderr
