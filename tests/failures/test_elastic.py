"""Elastic jobs on one host: for any killed rank and any time, the others continue, and every sample is seen."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from campaigns import fault_job
from support import hvdrun, verdicts
from support.forms import few

COUNTER = pathlib.Path(__file__).with_name("elastic_counter.py")
TORCH = COUNTER.with_name("elastic_rank.py")
DDP = COUNTER.with_name("elastic_ddp.py")
SAMPLES = 192


def environment(tmp_path: pathlib.Path, **more: str) -> dict[str, str]:
    """The environment for scripts in other folders, too."""
    return {"ELASTIC_FOLDER": str(tmp_path), "PYTHONPATH": str(COUNTER.parent), **more}


def job(tmp_path: pathlib.Path, np: int, *options: str, script: pathlib.Path = COUNTER, **env: str) -> Any:
    return hvdrun.run(
        "-np",
        str(np),
        *options,
        sys.executable,
        str(script),
        env=environment(tmp_path, **env),
        timeout=180,
    )


def result(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr + done.stdout
    lines = [line for line in done.stdout.splitlines() if '{"size"' in line]
    assert len(lines) == 1, done.stdout
    found: dict[str, Any] = json.loads(lines[0][lines[0].index("{") :])
    if isinstance(found["seen"][0], int):
        assert sorted(found["seen"]) == list(range(SAMPLES))
        return found
    for seen in found["seen"]:
        times = Counter(seen)
        assert set(times) == set(range(SAMPLES))
        # ElasticSampler divides the remaining samples evenly, so up to size - 1 samples occur twice after each change.
        assert sum(times.values()) - SAMPLES <= 3 * 4
    return found


@pytest.mark.parametrize("victims", [[0], [2], [0, 1], [1, 2]], ids=["rank 0", "the last", "the first two", "the last two"])
def test_survivors_go_on(tmp_path: pathlib.Path, victims: list[int]) -> None:
    file = tmp_path / "verdict.json"
    done = job(tmp_path, 3, "--min-np", "1", "--verdict-filename", str(file), ELASTIC_KILL=json.dumps([[5, victims]]))
    result(done)
    verdict = verdicts.checked(file.read_text())
    assert (verdict["outcome"], verdict["advice"]["action"]) == ("finished", "NONE")
    assert [(one["cause"], one["advice"]["action"]) for one in verdict["incidents"]] == [("killed", "RESTART")] * len(victims)
    assert sorted(one["rank"] for one in verdict["incidents"]) == victims
    line = next(line for line in done.stderr.splitlines() if "epoch 2" in line)
    assert f"3 → {3 - len(victims)} ranks" in line or "joined" in line, done.stderr
    assert "was killed by signal 9 (SIGKILL)" in line


@pytest.mark.ci
def test_a_killed_rank_of_pytorch_is_replaced(tmp_path: pathlib.Path) -> None:
    done = job(tmp_path, 3, "--min-np", "2", script=TORCH, ELASTIC_KILL="[[5, [1]]]", ELASTIC_WANTED="3")
    assert result(done)["size"] == 3
    assert "2 → 3 ranks" in done.stderr


@pytest.mark.parametrize("victim", few(["0", "1"]))
def test_survivors_in_ddps_backward_make_their_process_group_again(tmp_path: pathlib.Path, victim: str) -> None:
    done = job(tmp_path, 3, "--min-np", "2", script=DDP, ELASTIC_VICTIM=victim)
    assert done.returncode == 0, done.stderr
    ends = [line.partition("] ")[2] for line in done.stdout.splitlines() if "] done " in line]
    assert len(ends) == 3 and len(set(ends)) == 1 and ends[0].startswith("done 3 [3, 2, 3]"), done.stdout
    assert "3 → 2 ranks" in done.stderr and "SIGSEGV" not in done.stderr


@pytest.mark.ci
def test_a_process_group_outside_of_elastic_run_ends_with_its_first_lost_rank(tmp_path: pathlib.Path) -> None:
    done = job(tmp_path, 3, "--min-np", "2", script=DDP, ELASTIC_VICTIM="1", ELASTIC_PLAIN="1")
    assert done.returncode == 137, done.stderr
    assert "hvdrun: rank 1 on localhost was killed by signal 9 (SIGKILL)\n" in done.stderr
    assert "SIGSEGV" not in done.stderr


@pytest.mark.parametrize("who", ["first", "late"])
def test_a_rank_dies_in_its_init(tmp_path: pathlib.Path, who: str) -> None:
    """The rank has met the others, and dies in init().  The others, which wait in init() too, learn of the death at once."""
    late = who == "late"
    script = tmp_path / "script.py"
    script.write_text(f"import elastic_faults\nelastic_faults.die_in_init({late})\n" + COUNTER.read_text())
    options = ["--min-np", "1", "--blacklist-cooldown-range", "1", "2"]  # the late worker's slot has then failed twice
    kills = "[[5, [2]]]" if late else "[]"
    done = job(tmp_path, 3, *options, script=script, ELASTIC_KILL=kills, ELASTIC_WANTED="3")
    assert result(done)["size"] == 3
    assert (tmp_path / "died in init").exists()
    # 3 → 3: the survivors were slow, so a replacement came to the same meeting.
    waits = [float(s) for s in re.findall(r"3 → [23] ranks .*?, ([0-9.]+) s after", done.stderr)]
    assert len(waits) == (2 if late else 1), done.stderr
    assert max(waits) < hvdrun.within(3), done.stderr


def test_two_faults_one_after_the_other(tmp_path: pathlib.Path) -> None:
    done = job(tmp_path, 4, "--min-np", "1", ELASTIC_KILL="[[5, [3]], [5, [0]]]")
    result(done)


def test_too_few_slots_are_left(tmp_path: pathlib.Path) -> None:
    """No replacement comes, because each dies at once.  Hosts are fixed, so the job does not wait for --elastic-timeout."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal\nif os.environ['HVD_ELASTIC_LATE'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        + COUNTER.read_text()
    )
    begun = time.monotonic()
    done = job(tmp_path, 2, "--min-np", "2", script=script, ELASTIC_KILL="[[5, [1]]]")
    assert done.returncode == 137, done.stderr  # like the killed rank
    why = "1 slot left, --min-np asks for 2, and no host can be added: slot 1 of localhost has failed twice"
    assert why in done.stderr
    assert time.monotonic() - begun < 60 * hvdrun.patience()


def test_the_same_error_again_and_again_ends_the_job(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        COUNTER.read_text().replace("die_if_told(state.step)", "assert state.step < 5 or hvd.rank() != 0, 'a bug'")
    )
    done = job(tmp_path, 3, "--min-np", "1", script=script)
    assert done.returncode == 1, done.stderr
    assert "the same error has ended a worker 3 times" in done.stderr
    assert "AssertionError: a bug" in done.stderr


def test_spares(tmp_path: pathlib.Path) -> None:
    """Two deaths: each time a spare gets the slot, and another spare starts.  The timeline has the spares too."""
    options = ("--spares", "1", "--timeline-filename", str(tmp_path / "timeline.json"))
    done = job(tmp_path, 2, "--min-np", "2", *options, ELASTIC_KILL="[[8, [1]], [16, [0]]]", ELASTIC_PAUSE="0.2")
    events = json.loads((tmp_path / "timeline.json").read_text())
    assert {e["pid"] for e in events if e["name"] == "ALLREDUCE"} >= {0, 1, 2, 3}
    assert result(done)["size"] == 2
    assert done.stderr.count("2 → 2 ranks") == done.stderr.count("1 spare took over") == 2, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--spares", "1"], "only ranks of an elastic job are replaced"),
        (["--spares", "1", "--min-np", "1", "--gpus", "own"], "gets its GPU only when it becomes a rank"),
    ],
)
def test_spares_refused(tmp_path: pathlib.Path, words: list[str], said: str) -> None:
    done = job(tmp_path, 2, *words)
    assert done.returncode == 2 and said in done.stderr, done.stderr


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


# The script's first behaviour, and hvdrun's message.
DISCOVERIES = {
    "fails": ("exit 3", "ended with exit code 3"),
    "prints garbage": ("echo 'loc al:x:y'", "is not expected here; the job keeps its hosts"),
    "drops every host": (":", ""),
    "hangs": ("sleep 12", "did not end within 10 s"),
}


@pytest.mark.ci
def test_one_rank_of_pytorch_becomes_two(tmp_path: pathlib.Path) -> None:
    """An optimizer that was made in a world of one rank exchanges gradients once a second rank has joined."""
    discover = tmp_path / "discover"
    discover.write_text(f"#!/bin/sh\nif test -e {tmp_path}/steps; then echo localhost:2; else echo localhost:1; fi\n")
    discover.chmod(0o755)
    options = ["-np", "1", "--min-np", "1", "--host-discovery-script", str(discover), "--python", sys.executable]
    done = hvdrun.run(*options, str(TORCH), env=environment(tmp_path, ELASTIC_WANTED="2"), timeout=100)
    assert result(done)["size"] == 2


HANGS = """
import os, time
import numpy as np
import hvd.numpy as hvd
from hvd import elastic
hvd.init()
state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, done=False)

@elastic.run
def train(state):
    first = not os.path.exists("first")
    hvd.barrier()
    if first and hvd.rank() == 0:
        open("first", "w").close()
        os._exit(9)
    end = time.monotonic() + 60
    while not first and hvd.rank() == 1 and not os.path.exists("told") and time.monotonic() < end:
        time.sleep(0.1)
    hvd.allreduce(np.ones(1), name="late")

train(state)
"""


def test_who_hangs_is_told(tmp_path: pathlib.Path) -> None:
    """In a later world, ranks differ from workers' numbers."""
    (tmp_path / "train.py").write_text(HANGS)
    with hvdrun.started("-np", "3", "--min-np", "2", *hvdrun.python_args(), "train.py", cwd=tmp_path) as process:
        said = ""
        while not re.search(r"hvdrun: rank 2 on localhost is in train.py:1[78] .*; 1 rank has waited \d+ s for \S*late", said):
            line = hvdrun.read_line(process.stderr)
            assert line, said
            said += line
        (tmp_path / "told").touch()
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0, said + rest


LOOKS_FOR_HOSTS = """
import os, pathlib, time
if os.environ["HVD_RANK"] != "0":
    time.sleep(4)
import hvd.numpy as hvd
from hvd import elastic
hvd.init()
state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, done=False)

@elastic.run
def train(state):
    while not state.done:
        pathlib.Path("found").touch()
        while not os.path.exists("named"):
            time.sleep(0.01)
        begin = time.monotonic()
        while state._host_messages.empty():
            assert time.monotonic() - begin < 3, "no word of new hosts"
            time.sleep(0.1)
        state.done = True
        state.commit()
    print("ranks:", hvd.size())

train(state)
"""


def test_a_script_that_looks_for_new_hosts_itself_hears_of_them_when_their_ranks_are_ready(tmp_path: pathlib.Path) -> None:
    """Horovod's own test scripts poll for 3 seconds, and new ranks may import for longer."""
    (tmp_path / "train.py").write_text(LOOKS_FOR_HOSTS)
    discover = tmp_path / "discover"
    named = f"if test -e {tmp_path}/found; then echo localhost:2; touch {tmp_path}/named; else echo localhost:1; fi"
    discover.write_text(f"#!/bin/sh\n{named}\n")
    discover.chmod(0o755)
    options = ["-np", "1", "--min-np", "1", "--max-np", "2", "--host-discovery-script", str(discover)]
    done = hvdrun.run(*options, *hvdrun.python_args(), "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ranks: 2") == 2


@pytest.mark.parametrize("what", [pytest.param(w, marks=pytest.mark.nightly) if w == "hangs" else w for w in DISCOVERIES])
def test_discovery_goes_wrong(tmp_path: pathlib.Path, what: str) -> None:
    """The job keeps its hosts, and grows when the script works again."""
    does, says = DISCOVERIES[what]
    hosts = tmp_path / "hosts"
    hosts.write_text("echo localhost:1\n")
    discover = tmp_path / "discover"
    discover.write_text(f"#!/bin/sh\n. {hosts}\n")
    discover.chmod(0o755)
    options = ["-np", "1", "--min-np", "1", "--host-discovery-script", str(discover), "--python", sys.executable, str(COUNTER)]
    with hvdrun.started(*options, env=environment(tmp_path, ELASTIC_WANTED="2")) as process:
        steps = tmp_path / "steps"
        hvdrun.wait_until(lambda: len(fault_job.lines(steps)) > 2, "steps")
        calls = tmp_path / "calls"
        replace(hosts, f"echo >>{calls}\n{does}\n")
        # The second call begins after hvdrun has heard of the first.
        hvdrun.wait_until(lambda: calls.exists() and len(calls.read_text()) > 1, "two calls of the script")
        assert process.poll() is None
        assert {size for _, _, size in fault_job.lines(steps)} == {"1"}
        replace(hosts, "echo localhost:2\n")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert fault_job.lines(steps)[-1][2] == "2"
    assert says in err, err
    assert sorted(json.loads(out[out.index("{") :])["seen"]) == list(range(SAMPLES))


RUN = """
import os, signal, sys

import hvd


def main(folder):
    import hvd.numpy as h
    from hvd.elastic import ObjectState, broadcast_from_rank_0, run

    h.init()

    @run
    def train(state):
        while state.step < 2000 and (state.step < 20 or h.size() < 3 or not os.path.exists(folder + "/killed")):
            if state.step == 5 and h.rank() == 1 and not os.path.exists(folder + "/killed"):
                open(folder + "/killed", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            h.barrier()
            time.sleep(0.02)
            state.step += 1
            state.commit()
        return h.rank(), h.size()

    import time

    return train(ObjectState(broadcast_from_rank_0, h.rank, step=0))


print(hvd.run(main, (sys.argv[1],), num_proc=3, min_num_proc=1))
"""


OFFLINE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@pytest.mark.parametrize(
    ("hosts", "around"), few([(1, []), (3, OFFLINE), (3, [])], 2), ids=["1 host", "3 hosts, offline", "3 hosts"]
)
def test_a_function_on_ranks_that_are_replaced(tmp_path: pathlib.Path, hosts: int, around: list[str]) -> None:
    """With hvd.run(), a replacement rank also gets the function, even if the rank that distributed it on the host is dead.
    Results are in rank order. All host names mean this machine: the manifest's agent only runs a shell."""
    if around and subprocess.run([*around, "true"], check=False, capture_output=True).returncode:
        pytest.skip("a machine without a network needs unshare --net and ip")
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    agent.chmod(0o755)
    named = [{"address": f"far-{number}.invalid", "slots": 1} for number in range(hosts)]
    about = {"version": 1, "source": "test", "hosts": named, "launch_agent": [str(agent), "{host}"]}
    (tmp_path / "manifest").write_text(json.dumps(about))
    (tmp_path / "run.py").write_text(RUN)
    env = {"HVD_MANIFEST": str(tmp_path / "manifest"), "HVD_ALLOW_WRITABLE": "1"} if hosts > 1 else {}
    env |= {"HVD_RUN_PROGRAM": hvdrun.program()}
    command = [*around, sys.executable, str(tmp_path / "run.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=hvdrun.environment(**env))
    assert done.returncode == 0, done.stderr
    assert "[(0, 3), (1, 3), (2, 3)]" in done.stdout, done.stdout + done.stderr


def replace(file: pathlib.Path, text: str) -> None:
    """Replaces a file atomically."""
    fresh = file.with_name("fresh")
    fresh.write_text(text)
    fresh.rename(file)
