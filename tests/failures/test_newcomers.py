"""Ranks that an elastic job starts while others train: the others do not wait while they prepare."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time

import pytest

from support import hvdrun

# The beginning of every program below.
HEAD = """
import os, pathlib, time
import numpy as np
import hvd.numpy as hvd
from hvd import elastic
from hvd.exceptions import HostsUpdatedInterrupt
WORKER, LATE = os.environ["HVD_RANK"], os.environ["HVD_ELASTIC_LATE"] == "1"
steps = pathlib.Path("steps")

def wait_until(condition):
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.01)

def steps_done():
    return len(steps.read_text()) if steps.exists() else 0

def step(state):
    hvd.barrier()
    time.sleep(0.01)
    state.step += 1
    if hvd.rank() == 0:
        with steps.open("a") as file:
            file.write(".")
    state.commit()

hvd.init()
told = hvd.rank(), hvd.size(), hvd.local_rank(), os.environ["RANK"], os.environ["HOROVOD_SIZE"]
state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0, together=0)
resets = []
state.register_reset_callbacks([lambda: resets.append((hvd.rank(), hvd.size()))])
"""


def job(tmp_path: pathlib.Path, program: str, *options: str, env: dict[str, str] | None = None) -> tuple[str, str]:
    """The job's stdout and stderr."""
    (tmp_path / "train.py").write_text(HEAD + program)
    done = hvdrun.run(*options, *hvdrun.python_args(), "train.py", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout, done.stderr


def growing(tmp_path: pathlib.Path) -> list[str]:
    """Options: one rank at first, and two once it trains."""
    discover = tmp_path / "discover"
    discover.write_text(f"#!/bin/sh\ntest -e {tmp_path}/steps && echo localhost:2 || echo localhost:1\n")
    discover.chmod(0o755)
    return ["-np", "1", "--min-np", "1", "--max-np", "2", "--host-discovery-script", str(discover)]


GROWS = """
if LATE:
    before = steps_done()
    wait_until(lambda: steps_done() > before + 20)
    if not os.path.exists("dead"):
        open("dead", "w").close()
        os._exit(3)

@elastic.run
def train(state):
    while state.together < 5:
        state.together += hvd.size() == 2
        step(state)

train(state)
print(WORKER, "was told", told, "and is", (hvd.rank(), hvd.size()), resets)
"""


def test_others_train_while_a_newcomer_prepares_and_when_it_dies(tmp_path: pathlib.Path) -> None:
    out, err = job(tmp_path, GROWS, *growing(tmp_path))
    assert "2 was told (1, 2, 1, '1', '2') and is (1, 2) []" in out, out
    assert "epoch 2: 1 → 2 ranks" in err and "epoch 3" not in err, err


SLOW_NAMES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char* name, const char* service, const struct addrinfo* hints, struct addrinfo** found) {
  if (name && !strcmp(name, "slow.test")) sleep(60);
  int (*next)(const char*, const char*, const struct addrinfo*, struct addrinfo**) = dlsym(RTLD_NEXT, "getaddrinfo");
  return next(name, service, hints, found);
}
"""

GROWS_SOON = """
begun = time.monotonic()

@elastic.run
def train(state):
    while state.together < 5:
        state.together += hvd.size() == 2
        step(state)

train(state)
if not LATE:
    print("grew within", time.monotonic() - begun)
"""


def test_a_slow_name_service_delays_no_worker_of_other_hosts(tmp_path: pathlib.Path) -> None:
    """The new host comes first in the list."""
    (tmp_path / "names.c").write_text(SLOW_NAMES)
    library = tmp_path / "names.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "names.c", "-o", library], check=True, timeout=60)
    options = ["3" if option == "2" else option for option in growing(tmp_path)]
    discover = tmp_path / "discover"
    discover.write_text(discover.read_text().replace("echo localhost:2", "printf 'slow.test:1\\nlocalhost:2\\n'"))
    out, err = job(tmp_path, GROWS_SOON, *options, env={"LD_PRELOAD": str(library)})
    assert float(out.split()[-1]) < 45, err  # the name service takes 60 s


MOVES = """
if WORKER == "3":
    open("prepares", "w").close()
    wait_until(lambda: os.path.exists("second"))

def dies(note):
    open(note, "w").close()
    os._exit(9)

@elastic.run
def train(state):
    while state.together < 5:
        if hvd.rank() == 2 and state.step == 5 and not os.path.exists("first"):
            dies("first")
        if hvd.rank() == 1 and os.path.exists("prepares") and not os.path.exists("second"):
            dies("second")
        state.together += hvd.size() == 3 and os.path.exists("second")
        step(state)

train(state)
print(WORKER, "was told", told, "and is", (hvd.rank(), hvd.size()), resets)
"""


def test_the_world_changes_while_a_newcomer_prepares(tmp_path: pathlib.Path) -> None:
    """A newcomer has a provisional rank until it is admitted. It then gets its final rank, and its callbacks are called."""
    out, _ = job(tmp_path, MOVES, "-np", "3", "--min-np", "1")
    assert "3 was told (2, 3, 2, '2', '3') and is (1, 3) [(1, " in out, out
    assert "4 was told (2, 3, 2, '2', '3') and is (2, 3) []" in out, out


SPARE = """
STEPS = 5
if LATE:
    open("spare", "w").close()
"""

# Worker 1 dies once the file `spare` exists; then STEPS steps follow.
TAKES_OVER = """
@elastic.run
def train(state):
    while state.together < STEPS:
        if WORKER == "1" and os.path.exists("spare"):
            os._exit(9)
        state.together += os.path.exists("spare")
        step(state)

train(state)
print(WORKER, "was told", told, "and is", (hvd.rank(), hvd.size()), resets)
"""


def test_a_spare_has_prepared(tmp_path: pathlib.Path) -> None:
    out, err = job(tmp_path, SPARE + TAKES_OVER, "-np", "2", "--min-np", "2", "--spares", "1")
    assert "2 was told (1, 2, 1, '1', '2') and is (1, 2) []" in out, out
    assert "1 spare took over" in err, err


LONG_SPARE = """
import signal, threading
STEPS = 300

def stop_guard():  # hvdrun then takes the spare for a rank that is still in hvd.init()
    time.sleep(33)
    os.kill(os.getppid(), signal.SIGSTOP)
    open("spare", "w").close()
    time.sleep(4)
    os.kill(os.getppid(), signal.SIGCONT)

if LATE and WORKER == "2":
    threading.Thread(target=stop_guard).start()
"""


@pytest.mark.ci
def test_the_wait_of_a_spare_is_no_hang(tmp_path: pathlib.Path) -> None:
    """The spare takes over after it has waited in hvd.init() for longer than the user's limit, and than hvdrun's 30 s."""
    limits = ["--stall-check-warning-time-seconds", "9", "--stall-check-shutdown-time-seconds", "9"]
    _, err = job(tmp_path, LONG_SPARE + TAKES_OVER, "-np", "2", "--min-np", "2", "--spares", "1", *limits)
    assert "1 spare took over" in err, err
    assert "have waited" not in err and "has waited" not in err, err


COLLECTIVE = """
def meets():
    while True:
        try:
            step(state)
        except HostsUpdatedInterrupt:
            return elastic.rejoin()

if not LATE:
    meets()
print(hvd.allreduce(np.full(1, 1.0 + hvd.rank()), op=hvd.Sum, name="together"), "of", hvd.size())
"""


def test_a_collective_admits_a_newcomer(tmp_path: pathlib.Path) -> None:
    out, _ = job(tmp_path, COLLECTIVE, *growing(tmp_path))
    assert out.count("[3.] of 2") == 2, out


ENDS = """
@elastic.run
def train(state):
    while not os.path.exists("asked"):
        step(state)

train(state)
pathlib.Path("trained").write_text(str(time.monotonic()))
"""


def test_a_finished_job_does_not_wait_for_a_host_that_has_not_come(tmp_path: pathlib.Path) -> None:
    """The host is named while the job trains, and nothing starts there."""
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\ncase $1 in lost*) touch asked; exec sleep 300; esac\nshift\nexec "$@"\n')
    agent.chmod(0o755)

    def name(*hosts: str) -> None:
        named = [{"address": host, "slots": 1} for host in hosts]
        about = {"version": 1, "source": "test", "hosts": named, "launch_agent": [str(agent), "{host}"]}
        (tmp_path / "fresh").write_text(json.dumps(about))
        os.replace(tmp_path / "fresh", tmp_path / "manifest")

    name("far.invalid")
    (tmp_path / "train.py").write_text(HEAD + ENDS)
    options = ["-np", "1", "--min-np", "1", "--max-np", "2", "--start-timeout", "120", "--manifest", "manifest"]
    with hvdrun.started(*options, "--allow-writable", *hvdrun.python_args(), "train.py", cwd=tmp_path) as process:
        hvdrun.wait_until((tmp_path / "steps").exists, "steps")
        name("far.invalid", "lost.invalid")
        _, err = process.communicate(timeout=100)
        seconds = time.monotonic() - float((tmp_path / "trained").read_text())
    assert process.returncode == 0, err
    assert seconds < 20 * hvdrun.patience(), err
