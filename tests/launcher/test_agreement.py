"""--agreement: a result that differs on one rank is reported, or ends the job with the cause `diverged`."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess

import pytest

from support import hvdrun, verdicts

EXAMPLE = hvdrun.ROOT / "examples/torch_agreement.py"

# A thread of one rank writes to a tensor while the tensor is reduced.
CHANGES = """
import threading
import numpy as np
import hvd.numpy as hvd
hvd.init()
tensor = np.ones(1 << 21, np.float32)
ends = threading.Event()
def change():
    while not ends.is_set():
        tensor[0] = 77
thread = threading.Thread(target=change, daemon=True)
if hvd.rank() == 1:
    thread.start()
try:
    for step in range({steps}):
        hvd.allreduce_(tensor, op=hvd.Min, name="weights")
finally:
    ends.set()
hvd.barrier()
for step in range(3):
    hvd.allreduce(np.full(40_000, np.nan if hvd.rank() == 1 and step > 0 else 1, np.float32), name="gradient")
print("done", flush=True)
"""


def job(tmp_path: pathlib.Path, mode: str, ranks: int, steps: int, *more: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "changes.py"
    script.write_text(CHANGES.format(steps=steps))
    options = ["-np", str(ranks), "--agreement", mode, "--agreement-steps", "1", "--grace", "5"]
    return hvdrun.run(*options, "--verdict-filename", str(tmp_path / "v.json"), *more, *hvdrun.python_args(), str(script))


@pytest.mark.parametrize("ranks", [3, pytest.param(2, marks=pytest.mark.ci)])
def test_stop(tmp_path: pathlib.Path, ranks: int) -> None:
    done = job(tmp_path, "stop", ranks, 10_000)
    found = verdicts.check_file(tmp_path / "v.json", done.returncode)
    assert found is not None and done.returncode != 0
    assert found["cause"] == "diverged" and found["advice"]["action"] == "RESTART_ELSEWHERE", found
    assert found["rank"] == (1 if ranks == 3 else None), found
    assert "DivergedError" in found["headline"] and "'allreduce.weights' in step " in found["headline"], found
    assert [(one["kind"], one["tensor"]) for one in found["findings"]] == [("result_differs", "allreduce.weights")]
    words = "is not on rank 1 what it is on the others" if ranks == 3 else "differs between rank 0 and rank 1,"
    assert words in done.stderr


def test_report_and_off(tmp_path: pathlib.Path) -> None:
    done = job(tmp_path, "report", 2, 60, "--timeline-filename", str(tmp_path / "t.json"))
    assert done.returncode == 0 and done.stdout.count("done") == 2, done.stdout + done.stderr
    assert "agreement: the result of 'allreduce.weights' in step " in done.stderr
    assert 1 <= done.stderr.count("agreement: ") < 10
    assert len(re.findall(r"agreement: NaN in the sum 'allreduce.gradient' in step \d+, element \d+, from", done.stderr)) == 1
    check_findings(tmp_path, done)
    assert "agreement" not in job(tmp_path, "off", 2, 20).stderr
    found = verdicts.check_file(tmp_path / "v.json", 0)
    assert found is not None and found["findings"] == []


def check_findings(tmp_path: pathlib.Path, done: subprocess.CompletedProcess[str]) -> None:
    """The verdict file of a successful job, and the timeline, contain the findings of --agreement."""
    found = verdicts.check_file(tmp_path / "v.json", 0)
    assert found is not None and found["cause"] == "none"
    results = [one for one in found["findings"] if one["kind"] == "result_differs"]
    assert results and all(one["tensor"] == "allreduce.weights" and one["ranks"] == [0, 1] for one in results), found
    assert all("; stage: copy out" in one["text"] and one["step"] >= 0 for one in results), results
    sums = [one for one in found["findings"] if one["kind"] == "not_finite"]
    assert [(one["tensor"], one["ranks"]) for one in sums] == [("allreduce.gradient", [1])], found
    assert sums[0]["text"] in done.stderr
    events = [one for one in json.loads((tmp_path / "t.json").read_text()) if one.get("name", "").startswith("agreement: ")]
    assert [one["ph"] for one in events] == ["i"] * len(found["findings"]), events
    nan = next(one for one in events if one["name"] == "agreement: not finite")
    assert nan["pid"] == 1 and nan["args"]["tensor"] == "allreduce.gradient" and nan["args"]["ranks"] == [1], nan
    explained = hvdrun.run("explain", str(tmp_path / "v.json")).stdout
    assert "findings\n" in explained and sums[0]["text"] in explained, explained


# Rank 1 changes a number by itself.
CHANGED = """
import numpy as np
import hvd.numpy as hvd
hvd.init()
weights = np.zeros(500, np.float32)
for step in range(12):
    if step == 4 and hvd.rank() == 1:
        weights[7] = 1
    hvd.agreement.compare({"weights": weights})
print("sum", weights.sum(), flush=True)
"""


def test_a_repair_is_in_the_verdict_and_in_the_timeline(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "changed.py"
    script.write_text(CHANGED)
    options = ["-np", "3", "--agreement", "repair", "--agreement-steps", "1", "--timeline-filename", str(tmp_path / "t.json")]
    done = hvdrun.run(*options, "--verdict-filename", str(tmp_path / "v.json"), *hvdrun.python_args(), str(script))
    assert done.returncode == 0 and done.stdout.count("sum 0.0") == 3, done.stdout + done.stderr
    found = verdicts.check_file(tmp_path / "v.json", 0)
    assert found is not None
    told = [(one["kind"], one["tensor"], one["step"], one["ranks"]) for one in found["findings"]]
    assert told == [("parameter_differs", "weights", 5, [1]), ("repaired", "", 5, [1])], found
    events = [one for one in json.loads((tmp_path / "t.json").read_text()) if one.get("name", "").startswith("agreement: ")]
    assert [(one["name"], one["pid"]) for one in events] == [("agreement: parameter differs", 1), ("agreement: repaired", 1)]


@pytest.mark.ci
def test_the_example(tmp_path: pathlib.Path) -> None:
    options = ["-np", "3", "--agreement", "report", "--verdict-filename", str(tmp_path / "v.json")]
    done = hvdrun.run(*options, *hvdrun.python_args(), str(EXAMPLE))
    assert done.returncode == 0 and done.stdout.count("has made all steps") == 3, done.stdout + done.stderr
    assert re.search(r"agreement: parameter 2\.weight, elements 0-640, is not on rank 1 \(\S+\) what it is on", done.stderr)
    found = verdicts.check_file(tmp_path / "v.json", 0)
    assert found is not None and found["findings"], found
    first = found["findings"][0]
    assert (first["kind"], first["tensor"], first["ranks"]) == ("parameter_differs", "parameter 2.weight", [1]), first
    assert first["step"] >= 1 and first["text"] in done.stderr, first


# Rank 1 changes one weight by itself.
DRIFTS = """
import torch
import hvd.torch as hvd
hvd.init()
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
state, drifted = hvd.elastic.TorchState(model, optimizer, step=0), []
@hvd.elastic.run
def train(state):
    while state.step < 30:
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        state.step += 1
        if state.step == 15 and hvd.rank() == 1 and not drifted:
            drifted.append(True)
            with torch.no_grad():
                model.weight[3, 3] += 1
        if state.step % 10 == 0:
            state.commit()
    print("sum", float(model.weight.detach().sum()), flush=True)
train(state)
"""


@pytest.mark.ci
def test_an_elastic_job_goes_on_from_the_commit(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "drifts.py"
    script.write_text(DRIFTS)
    options = ["-np", "2", "--min-np", "2", "--agreement", "stop", "--agreement-steps", "4"]
    done = hvdrun.run(*options, *hvdrun.python_args(), str(script))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("agreement: parameter weight, elements ") == 1, done.stderr
    sums = [line.partition("sum ")[2] for line in done.stdout.splitlines() if "sum " in line]
    assert len(sums) == 2 and sums[0] == sums[1], done.stdout


# Rank 1 dies once, and a spare takes its place.  watch() replaces the watch that the optimizer has begun.
REPLACED = """
import os, sys
import torch
import hvd.torch as hvd
hvd.init()
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
hvd.agreement.watch(model, optimizer, exclude=["bias"])
state = hvd.elastic.TorchState(model, optimizer, step=0)
@hvd.elastic.run
def train(state):
    while state.step < 30:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        state.step += 1
        if state.step == 12 and hvd.rank() == 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os._exit(9)
        if state.step % 10 == 0:
            state.commit()
    print("ends with", hvd.size(), flush=True)
train(state)
"""


@pytest.mark.ci
def test_a_new_rank_of_an_elastic_job_compares_with_the_others(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "replaced.py"
    script.write_text(REPLACED)
    options = [
        "-np",
        "2",
        "--min-np",
        "2",
        "--spares",
        "1",
        "--agreement",
        "report",
        "--stall-check-shutdown-time-seconds",
        "20",
    ]
    done = hvdrun.run(*options, *hvdrun.python_args(), str(script), str(tmp_path / "died"))
    assert done.returncode == 0 and done.stdout.count("ends with 2") == 2, done.stdout + done.stderr
    assert "agreement" not in done.stderr, done.stderr


# The rank of the second host changes a parameter by itself, in two steps.
LEAVES = """
import sys
import numpy as np
import hvd.numpy as hvd
from hvd.elastic import ObjectState, broadcast_from_rank_0, run
hvd.init()
state, changed = ObjectState(broadcast_from_rank_0, hvd.rank, step=0, weights=np.ones(500)), []
@run
def train(state):
    while state.step < 40:
        state.weights += hvd.allreduce(np.ones(500), name="gradient")
        state.step += 1
        if state.step in (8, 24) and hvd.rank() == 2 and state.step not in changed:
            changed.append(state.step)
            state.weights[7] += 1
        hvd.agreement.compare({"weights": state.weights})
        if state.step % 5 == 0:
            state.commit()
    print("ends with", hvd.size(), sorted(set(state.weights.tolist())), flush=True)
train(state)
"""


def test_a_job_leaves_a_host_whose_rank_differs_again(tmp_path: pathlib.Path) -> None:
    """The first difference is repaired.  After the second one, the rank's process ends, and its host gets no other."""
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    agent.chmod(0o755)
    hosts = [{"address": "near.invalid", "slots": 2}, {"address": "far.invalid", "slots": 1}]
    about = {"version": 1, "source": "test", "hosts": hosts, "launch_agent": [str(agent), "{host}"]}
    (tmp_path / "manifest").write_text(json.dumps(about))
    (tmp_path / "leaves.py").write_text(LEAVES)
    options = ["-np", "3", "--min-np", "2", "--max-np", "3", "--manifest", "manifest", "--allow-writable"]
    options += ["--agreement", "repair", "--agreement-steps", "4", "--verdict-filename", "v.json"]
    done = hvdrun.run(*options, *hvdrun.python_args(), "leaves.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ends with 2 [41.0]\n") == 2, done.stdout + done.stderr
    line = r"agreement: weights, elements 0-500, is not on rank 2 \(\S+\) what it is on the others"
    assert len(re.findall(line, done.stderr)) >= 2, done.stderr
    assert done.stderr.count("rank 2 has got the parameters and the optimizer's state of rank 0") == 1, done.stderr
    left = "hvdrun: the job leaves far.invalid: a rank there has had other parameters than the others twice\n"
    assert done.stderr.count(left) == 1, done.stderr
    found = verdicts.check_file(tmp_path / "v.json", done.returncode)
    assert found is not None and found["outcome"] == "finished", found


SHIFTED = """
import os, signal
import numpy as np
import hvd.numpy as hvd
from hvd.elastic import ObjectState, broadcast_from_rank_0, run
hvd.init()
worker, differs = None, False  # those of a newcomer
state = ObjectState(broadcast_from_rank_0, hvd.rank, step=0, weights=np.ones(500))
@run
def train(state):
    global worker, differs
    while state.step < 30:
        state.weights += hvd.allreduce(np.ones(500), name="gradient")
        state.step += 1
        if state.step == 5:
            worker, differs = hvd.rank(), hvd.rank() == 3
        if worker == 1 and state.step == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        if differs and hvd.rank() == 2 and state.step == 15:
            differs = False
            state.weights[7] += 1
        hvd.agreement.compare({"weights": state.weights})
        if state.step % 5 == 0:
            state.commit()
train(state)
"""


@pytest.mark.ci
def test_a_finding_of_an_elastic_job_names_the_worker(tmp_path: pathlib.Path) -> None:
    """After the loss of worker 1, worker 3 is rank 2 of the world.  The verdict uses the numbers of output and stacks."""
    (tmp_path / "shifted.py").write_text(SHIFTED)
    options = ["-np", "4", "--min-np", "3", "--max-np", "4", "-H", "localhost:3,localhost:1", "--agreement", "report"]
    options += ["--agreement-steps", "4", "--verdict-filename", "v.json"]
    done = hvdrun.run(*options, *hvdrun.python_args(), "shifted.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "epoch 2: 4 → 3 ranks" in done.stderr, done.stderr
    found = verdicts.check_file(tmp_path / "v.json", done.returncode)
    assert found is not None
    assert {tuple(finding["ranks"]) for finding in found["findings"]} == {(3,)}, found["findings"]
