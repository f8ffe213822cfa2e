"""torch.distributed.init_process_group("hvd") in scripts that hvdrun starts."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

from support import hvdrun, verdicts
from support.forms import few
from support.incidents import told

torch = pytest.importorskip("torch")
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
FRONT = "import hvd.torch, time, torch, torch.distributed as dist\n"


def run(folder: pathlib.Path, script: str, *args: str, ranks: int = 2, env: dict[str, str] | None = None):  # type: ignore[no-untyped-def]
    (folder / "script.py").write_text(FRONT + script)
    words = ["-np", str(ranks), *args, *hvdrun.python_args(), "script.py"]
    return hvdrun.run(*words, cwd=folder, env=env, timeout=120 * max(1, min(hvdrun.patience() / 2, 1.8)))


def stall_limits() -> tuple[int, dict[str, str]]:
    """Seconds after which a stall ends the job, and both limits' variables.  A slow start must not count as a stall."""
    seconds = round(min(hvdrun.within(3), 20))
    check = str(max(1, seconds // 4))
    return seconds, {"HOROVOD_STALL_CHECK_TIME_SECONDS": check, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(seconds)}


@pytest.mark.ci
def test_example() -> None:
    if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("fully_shard came with torch 2.6")
    pytest.importorskip("sklearn")
    done = hvdrun.run("-np", "2", *hvdrun.python_args(), str(EXAMPLES / "torch_backend.py"), "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert "[0 localhost] epoch 2/2  right " in done.stdout


def test_a_timeline_has_a_row_for_each_call_of_the_loop(tmp_path: pathlib.Path) -> None:
    loop = """
dist.init_process_group("hvd")
for _ in range(60):
    dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.ones(5), 0)
if dist.get_rank():
    dist.recv(torch.ones(3), 0)
else:
    dist.send(torch.ones(3), 1)
dist.destroy_process_group()
"""
    done = run(tmp_path, loop, "--timeline-filename", str(tmp_path / "timeline.json"))
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "timeline.json").read_text())
    events = told["traceEvents"] if isinstance(told, dict) else told
    rows = {str(event.get("args", {}).get("name")) for event in events if event.get("ph") == "M"}
    assert {"c10d/world #1", "c10d/world/send 0 to 1 tag 0 #1"} <= rows
    assert len([row for row in rows if row.startswith("c10d/world #")]) < 30
    assert {"NEGOTIATE_ALLREDUCE", "NEGOTIATE_BROADCAST"} <= {event.get("name") for event in events}


def test_a_rank_that_does_not_come_is_named(tmp_path: pathlib.Path) -> None:
    script = """
import time
dist.init_process_group("hvd")
group = dist.new_group([0, 1])
if dist.get_rank() == 1:
    time.sleep(90)
dist.all_reduce(torch.ones(4), group=group)
"""
    done = run(tmp_path, script, env=stall_limits()[1])
    assert done.returncode != 0
    assert "c10d/1[0-1] #1" in done.stderr and "rank 1" in done.stderr


@pytest.mark.parametrize(
    ("act", "told"),
    few(
        [
            ("dist.all_reduce(torch.ones(7))", "ranks disagree on shape: [4160] on ranks 0, 2, [7] on rank 1)"),
            ("raise SystemExit(0)", "hvdrun: rank 1 on localhost left the job while others still waited for it"),
            (
                "raise ValueError('no data in shard 7')",
                "hvdrun: rank 1 on localhost ended with exit code 1 (ValueError: no data in",
            ),
        ]
    ),
    ids=["another call", "an early end", "an exception"],
)
def test_a_rank_that_fails_while_others_are_in_backward(tmp_path: pathlib.Path, act: str, told: str) -> None:
    script = f"""
dist.init_process_group("hvd")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
for step in range(20):
    if step == 5 and dist.get_rank() == 1:
        {act}
    model(torch.randn(8, 64)).sum().backward()
"""
    done = run(tmp_path, script, ranks=3)
    assert done.returncode == 1, done.stderr
    assert "signal" not in done.stderr and told in done.stderr, done.stderr


def verdict_of_mismatch(folder: pathlib.Path, script: str, ranks: int = 2) -> tuple[str, dict[str, Any]]:
    """hvdrun's last words and the verdict of a job whose ranks disagree.  The script imports fails_together."""
    shutil.copy(hvdrun.ROOT / "tests/support/fails_together.py", folder)
    done = run(folder, script, "--verdict-filename", str(folder / "v.json"), ranks=ranks)
    assert done.returncode == 1, done.stderr
    verdict = verdicts.checked((folder / "v.json").read_text())
    assert verdict["cause"] == "mismatch" and verdict["advice"]["action"] == "FIX_CODE", verdict
    return done.stderr, verdict


@pytest.mark.ci
def test_ranks_that_disagree_have_their_functions_and_lines(tmp_path: pathlib.Path) -> None:
    script = """
import fails_together; dist.init_process_group("hvd")
def step():
    dist.all_reduce(torch.ones(4))
for _ in range(3):
    step()
if dist.get_rank() == 1:
    dist.barrier()
else:
    step()
"""
    told, verdict = verdict_of_mismatch(tmp_path, script, ranks=3)
    first = FRONT.count("\n")
    lines = f"        ranks 0,2 called torch.distributed.all_reduce at script.py:{first + 4} (step)\n"
    lines += f"        rank 1 called torch.distributed.barrier at script.py:{first + 8}\n"
    assert "ranks disagree on operation: allreduce on ranks 0, 2, barrier on rank 1)\n" + lines in told, told
    assert [(call["ranks"], call["function"], call["frame"]["line"]) for call in verdict["calls"]] == [
        ("0,2", "torch.distributed.all_reduce", first + 4),
        ("1", "torch.distributed.barrier", first + 8),
    ]


@pytest.mark.parametrize(
    ("calls", "told"),
    few(
        [
            (
                "work = dist.all_reduce(torch.ones(4 + rank), async_op=True)\ntime.sleep(0.1)\nwork.wait()",
                "ranks 0-1 called torch.distributed.all_reduce at script.py:5",
            ),
            (
                "dist.send(torch.ones(4), 1) if rank == 0 else dist.irecv(torch.ones(5), 0).wait()",
                "rank 0 called torch.distributed.send at script.py:5\n        rank 1 was at script.py:5",
            ),
            ("hvd.torch.allreduce(torch.ones(4 + rank), name='a')", "ranks 0-1 called hvd.allreduce at script.py:5"),
            (
                "hvd.torch.synchronize(hvd.torch.broadcast_async_(torch.ones(4 + rank), 0, name='a'))",
                "ranks 0-1 called hvd.synchronize at script.py:5",
            ),
            (
                "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))\n"
                "dist.all_reduce(torch.ones(7)) if rank else None\n"
                "model(torch.ones(1, 4)).sum().backward()",
                "rank 0 was at script.py:7\n        rank 1 called torch.distributed.all_reduce at script.py:6",
            ),
        ]
    ),
    ids=["asynchronous", "messages", "hvd", "hvd, asynchronous", "gradients"],
)
def test_calls_of_several_kinds_that_disagree(tmp_path: pathlib.Path, calls: str, told: str) -> None:
    script = "import fails_together; dist.init_process_group('hvd')\ndist.barrier()\nrank = dist.get_rank()\n" + calls
    assert told in verdict_of_mismatch(tmp_path, script)[0].replace(" (<module>)", "")


def test_a_disagreement_that_the_script_handles_is_not_told(tmp_path: pathlib.Path) -> None:
    script = """
dist.init_process_group("hvd")
try:
    dist.all_reduce(torch.ones(4 + dist.get_rank()))
except RuntimeError as error:
    print(error)
dist.barrier()
if dist.get_rank() == 1:
    raise ValueError("no data")
time.sleep(90)
"""
    done = run(tmp_path, script, "--verdict-filename", str(tmp_path / "v.json"))
    verdict = verdicts.checked((tmp_path / "v.json").read_text())
    assert verdict["cause"] == "exception" and verdict["rank"] == 1 and verdict["calls"] == [], verdict
    assert "ranks disagree on shape" in done.stdout and " called " not in done.stderr, done.stderr


def test_a_rank_that_ends_early_is_named_over_gloo(tmp_path: pathlib.Path) -> None:
    """gloo's error has an address and no rank."""
    script = """
dist.init_process_group("gloo")
for step in range(4 - dist.get_rank()):
    dist.all_reduce(torch.ones(4))
"""
    done = run(tmp_path, script)
    assert done.returncode == 1
    assert "hvdrun: rank 1 on localhost left the job while others still waited for it\n" in done.stderr, done.stderr
    assert "DistributedDataParallel.join()" in done.stderr


@pytest.mark.ci
def test_a_receive_posted_in_advance_is_no_wait(tmp_path: pathlib.Path) -> None:
    """Rank 0's receive is posted long before its message: with collectives, then without, for longer than all limits."""
    seconds, env = stall_limits()
    script = f"""
dist.init_process_group("hvd")
rank = dist.get_rank()
late = torch.zeros(1)
work = dist.irecv(late, 1, tag=99) if rank == 0 else None
begin, more = time.monotonic(), torch.ones(1)
while more:
    more = torch.tensor(float(rank == 0 and time.monotonic() - begin < {seconds + 1}))
    dist.all_reduce(more)
    time.sleep(0.2)
time.sleep({seconds + 2})
dist.all_reduce(torch.ones(1))
if work is None:
    dist.send(torch.ones(1), 0, tag=99)
else:
    work.wait()
    print("got", late.item(), flush=True)
"""
    done = run(tmp_path, script, env=env)
    assert done.returncode == 0, done.stderr
    assert "got 1.0" in done.stdout
    assert not re.search("c10d|all_reduce|send|recv", done.stderr), done.stderr  # a slow start may be told


def test_a_rank_that_waits_has_torch_s_function_and_its_line(tmp_path: pathlib.Path) -> None:
    script = """
dist.init_process_group("hvd")
if dist.get_rank() == 1:
    time.sleep(90)
dist.all_gather([torch.ones(1), torch.ones(1)], torch.ones(1))  # broadcasts of the runtime
"""
    (tmp_path / "script.py").write_text(FRONT + script)
    lines = FRONT.count("\n")
    with hvdrun.started("-np", "2", *hvdrun.python_args(), "script.py", cwd=tmp_path) as job:
        told(job, rf"hvdrun: rank 1 on localhost is in script.py:{lines + 4}; 1 rank has waited .*\n")
        # Rank 0 may answer too late for the first message on the hang.
        while (line := hvdrun.next_line(job.stderr)).strip() != f"rank 0 is in all_gather at script.py:{lines + 5}":
            assert f"rank 1 on localhost is in script.py:{lines + 4}" in line, line


@pytest.mark.parametrize("waits", few(["dist.recv(x, 2)", "dist.irecv(x, 2, tag=7).wait()", "dist.send(x, 2)"]))
def test_a_wait_for_a_message_names_the_other_rank(tmp_path: pathlib.Path, waits: str) -> None:
    script = f"""
dist.init_process_group("hvd")
x = torch.ones(1)
early = dist.irecv(torch.zeros(1), 0, tag=5) if dist.get_rank() == 2 else None
if dist.get_rank() == 1:
    {waits}
time.sleep(90)
"""
    seconds, env = stall_limits()
    done = run(tmp_path, script, ranks=3, env=env)
    assert done.returncode != 0
    direction = "1 to 2" if "send" in waits else "2 to 1"
    assert re.search(
        rf"rank 2 on localhost is in script.py:\d+.*; 1 rank has waited \d+ s for c10d/world/send {direction}", done.stderr
    )
    assert "send 0 to 2" not in done.stderr
    waited = re.search(r"' has waited (\d+) s for rank 2", done.stderr)
    assert waited and int(waited[1]) >= seconds, done.stderr


def test_hosts_tensors_beside_another_backend(tmp_path: pathlib.Path) -> None:
    if not hasattr(torch._C._distributed_c10d.Backend, "allreduce"):
        pytest.skip("groups of several backends need torch 2.15")
    script = """
dist.init_process_group("cpu:hvd,cuda:gloo")
tensor = torch.ones(3)
dist.all_reduce(tensor)
found = torch.zeros(6)
dist.all_gather_into_tensor(found, tensor)
work = dist.broadcast(tensor, 0, async_op=True)
work.wait()
assert dist.group.WORLD._get_backend(torch.device("cpu")).options.backend == "hvd"
print(type(dist.group.WORLD).__name__, found.tolist(), flush=True)
dist.destroy_process_group()
"""
    done = run(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert "[1 localhost] ProcessGroup [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]" in done.stdout


def test_a_receive_from_any_source_ends_when_nobody_can_answer(tmp_path: pathlib.Path) -> None:
    """Rank 0 leaves, which ends the messages through torch's store."""
    script = """
dist.init_process_group("hvd")
if dist.get_rank() == 2:
    begin = time.monotonic()
    for _ in range(2):
        try:
            dist.recv(torch.zeros(1))
        except RuntimeError as error:
            print("told:", error, time.monotonic() - begin < 20, flush=True)
dist.destroy_process_group()
"""
    done = run(tmp_path, script, ranks=3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("told: hvd: rank 0 has left torch.distributed") == done.stdout.count("named True") == 2


def test_torchs_own_entry_point(tmp_path: pathlib.Path) -> None:
    if not hasattr(torch.distributed.Backend, "_ensure_backend_registered"):
        pytest.skip("the entry point torch.distributed.backends came with torch 2.15")
    (tmp_path / "hvd_entry-1.dist-info").mkdir()
    (tmp_path / "hvd_entry-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: hvd-entry\nVersion: 1\n")
    points = "[torch.distributed.backends]\nhvd = hvd.torch.c10d:register\n"
    (tmp_path / "hvd_entry-1.dist-info" / "entry_points.txt").write_text(points)
    script = (
        "import sys, torch.distributed as dist\nsys.path.append('.')\ndist.init_process_group('hvd')\nprint(dist.get_backend())"
    )
    (tmp_path / "script.py").write_text(script)
    done = hvdrun.run("-np", "2", *hvdrun.python_args(), "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[1 localhost] hvd" in done.stdout


def test_torchrun_is_told_from_hvdrun(tmp_path: pathlib.Path) -> None:
    script = FRONT + 'dist.init_process_group("hvd", init_method="file://STORE", rank=0, world_size=2)\n'
    (tmp_path / "script.py").write_text(script.replace("STORE", str(tmp_path / "store")))
    env = hvdrun.environment()
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "hvdrun -np N script.py, in place of torchrun" in done.stderr


def test_a_rank_alone_needs_no_launcher(tmp_path: pathlib.Path) -> None:
    script = (
        FRONT
        + """
dist.init_process_group("hvd", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(tensor := torch.ones(2))
print(tensor.tolist())
"""
    )
    done = subprocess.run([sys.executable, "-c", script], env=hvdrun.environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1.0, 1.0]\n"


def test_ranks_may_end_without_a_word(tmp_path: pathlib.Path) -> None:
    script = """
dist.init_process_group("hvd")
rank, size = dist.get_rank(), dist.get_world_size()
for group in [dist.new_group([0, other]) for other in range(1, size)]:
    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        dist.all_reduce(torch.ones(1), group=group)
dist.all_reduce(torch.ones(3), async_op=True).get_future()
"""
    done = run(tmp_path, script, ranks=3)
    assert done.returncode == 0, done.stderr
    assert "terminate" not in done.stderr and "TCPStore" not in done.stderr
