"""hvdrun inside allocations of a real Slurm: ranks run where Slurm places them, by srun and munge, without named hosts."""

from __future__ import annotations

import pathlib
import re
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from netns import fixtures, jobs, slurm
from netns.capture import Capture
from netns.cluster import Cluster, wait_for
from support import hvdrun
from support.hvdrun import ROOT

WHO = "echo $HVD_RANK/$HVD_SIZE $HVD_LOCAL_RANK/$HVD_LOCAL_SIZE $(hostname)"
TASK = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID $SLURM_STEP_NODELIST"


@pytest.fixture(scope="module")
def slurm_hosts() -> Iterator[Cluster]:
    """Three hosts with Slurm, without ssh between them: hvdrun has only srun."""
    if reason := slurm.why_not():
        pytest.skip(reason)
    for cluster in fixtures.make(3):
        slurm.start(cluster)
        yield cluster


def lines(text: str) -> list[str]:
    """The ranks' lines without their tags."""
    return sorted(re.findall(r"^\[\d+ \w+\] (.*)$", text, re.M))


def idle_again(cluster: Cluster) -> None:
    """The job is over, and has left no process."""
    wait_for(lambda: slurm.idle(cluster) == set(cluster.names), 90, "the nodes' release")
    left: dict[str, object] = {}
    try:
        wait_for(lambda: not left_over(cluster, left), 60, "the end of all processes")
    except TimeoutError as error:
        raise AssertionError(f"{error}: {left}") from error


def left_over(cluster: Cluster, out: dict[str, object]) -> bool:
    """Returns whether a host runs processes other than Slurm's daemons. `out` receives them by host."""
    out.clear()
    out.update({host: found for host in cluster.names if (found := slurm.processes(cluster, host))})
    return bool(out)


@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
def test_salloc(slurm_hosts: Cluster, mpirun: str) -> None:
    """Two tasks on each of two nodes."""
    argv = ["salloc", "-N2", "--ntasks-per-node=2", hvdrun.program(), "--mpirun", mpirun, "--", "sh", "-c", WHO]
    done = slurm.run(slurm_hosts, "alpha", *argv)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["0/4 0/2 alpha", "1/4 1/2 alpha", "2/4 0/2 beta", "3/4 1/2 beta"], done.stdout + done.stderr
    idle_again(slurm_hosts)


def test_a_rank_is_what_slurm_calls_a_task(slurm_hosts: Cluster) -> None:
    """JAX and Lightning read these variables, and would otherwise take the batch script's or the daemon's."""
    argv = ["salloc", "-N2", "--ntasks-per-node=2", hvdrun.program(), "--", "sh", "-c", TASK]
    done = slurm.run(slurm_hosts, "alpha", *argv)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["0/4 0 0 alpha,beta", "1/4 1 0 alpha,beta", "2/4 0 1 alpha,beta", "3/4 1 1 alpha,beta"]
    idle_again(slurm_hosts)


@pytest.mark.parametrize("mpirun", hvdrun.nightly_for_openmpi5())
def test_sbatch_of_a_training_script(slurm_hosts: Cluster, mpirun: str) -> None:
    """Uneven tasks on three nodes, one of them chosen by Slurm's own arithmetic; nothing secret crosses the network."""
    secret = secrets.token_hex(20)
    train = "import os, numpy as np, hvd.numpy as hvd\nhvd.init()\n"
    train += "s = hvd.allreduce(np.ones(3), op=hvd.Sum, name='t')\n"
    train += "print('sum', int(s[0]), 'of', hvd.size(), os.environ['SECRET'])\n"
    for host in slurm_hosts.names:
        (slurm_hosts.tmp(host) / "train.py").write_text(train)
    batch = f"#!/bin/sh\n{hvdrun.program()} --mpirun {mpirun} --python {jobs.python()} /tmp/train.py\n"
    (slurm_hosts.tmp("alpha") / "job.sh").write_text(batch)
    options = ["--parsable", "-N3", "-n5", "--output=/tmp/out", "--error=/tmp/err", "--export=ALL"]
    with Capture(slurm_hosts) as wire:
        job = slurm.run(slurm_hosts, "alpha", "sbatch", *options, "/tmp/job.sh", env=jobs.environment(SECRET=secret)).stdout
        wait_for(
            lambda: re.search("JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL) ", told(slurm_hosts, job)),
            60,
            "the job's end",
        )
    out, err = ((slurm_hosts.tmp("alpha") / name).read_text() for name in ("out", "err"))
    assert "JobState=COMPLETED " in told(slurm_hosts, job), out + err + told(slurm_hosts, job)
    assert lines(out) == [f"sum 5 of 5 {secret}"] * 5, out + err
    ours = [flow for flow in wire.find(secret.encode()) if not 6817 <= flow[1] <= 6818 and not 6817 <= flow[3] <= 6818]
    assert not ours, f"the environment crosses the network in clear: {ours}"  # 6817, 6818: Slurm's own, with sbatch's copy
    idle_again(slurm_hosts)


def told(cluster: Cluster, job: str) -> str:
    """Slurm's description of a job.  (sbatch --wait would poll only every ten seconds.)"""
    return str(slurm.run(cluster, "alpha", "scontrol", "show", "job", job.strip()).stdout)


def test_dry_run_says_where_from(slurm_hosts: Cluster) -> None:
    done = slurm.run(slurm_hosts, "alpha", "salloc", "-N1", "-n3", hvdrun.program(), "--dry-run", "--", "true")
    assert re.match(r"3 ranks on 1 host, from Slurm job \d+: ", done.stdout), done.stdout + done.stderr


def test_srun_itself_starts_one_world_on_one_host(slurm_hosts: Cluster) -> None:
    """Without hvdrun; over several hosts each process says that it trains alone."""
    script = "import hvd.numpy as hvd; hvd.init(); print(hvd.rank(), hvd.size(), flush=True)"
    one = slurm.run(slurm_hosts, "alpha", "srun", "-N1", "-n2", jobs.python(), "-c", script, env=jobs.environment())
    assert sorted(one.stdout.splitlines()) == ["0 2", "1 2"], one.stdout + one.stderr
    two = slurm.run(slurm_hosts, "alpha", "srun", "-N2", "-n2", jobs.python(), "-c", script, env=jobs.environment())
    assert two.stdout.splitlines() == ["0 1", "0 1"], two.stdout + two.stderr
    assert two.stderr.count("this process trains alone, though srun seems to have started several") == 2, two.stderr


def test_scancel_leaves_nothing(slurm_hosts: Cluster) -> None:
    """scancel acts like preemption: SIGTERM, then SIGKILL after KillWait. No process of the job is left."""
    batch = f"#!/bin/sh\nexec {hvdrun.program()} -- sh -c 'echo up; sleep 777'\n"
    (slurm_hosts.tmp("alpha") / "job.sh").write_text(batch)
    args = ["--parsable", "-N2", "-n2", "--output=/tmp/out", "--error=/tmp/err", "/tmp/job.sh"]
    job = slurm.run(slurm_hosts, "alpha", "sbatch", *args).stdout.strip()
    out = pathlib.Path(slurm_hosts.tmp("alpha") / "out")
    wait_for(lambda: out.exists() and out.read_text().count(" up\n") == 2, 90, "both ranks")
    slurm.run(slurm_hosts, "alpha", "scancel", job)
    idle_again(slurm_hosts)


def test_the_batch_script_of_the_examples_saves_and_goes_on(slurm_hosts: Cluster) -> None:
    """examples/train.sbatch on two nodes: on Slurm's signal it saves; submitted again, it resumes."""
    if reason := no_torch():
        pytest.skip(reason)
    options = ["--parsable", "--ntasks-per-node=1", f"--chdir={ROOT}", "--output=/tmp/digits.out", "examples/train.sbatch"]
    env = jobs.environment(HOME="/tmp", HVD_ALLOW_WRITABLE="1")
    out = slurm_hosts.tmp("alpha") / "digits.out"
    for times in (1, 2):
        epochs = text_of(out).count("  accuracy ")
        job = slurm.run(slurm_hosts, "alpha", "sbatch", *options, env=env, cwd=str(ROOT)).stdout.strip()
        # It handles signals from its first step on.
        wait_for(lambda epochs=epochs: text_of(out).count("  accuracy ") > epochs, 150, f"an epoch of job {job}")
        slurm.run(slurm_hosts, "alpha", "scancel", "--batch", "--signal=TERM", job)
        idle_again(slurm_hosts)
        assert text_of(out).count("told to end: saved in epoch ") == times, text_of(out)
    assert "goes on in epoch " in text_of(out)


@pytest.mark.ci
def test_an_elastic_job_returns_to_the_queue_at_the_time_limit(slurm_hosts: Cluster) -> None:
    """The job of examples/elastic.sbatch ends on Slurm's signal and is requeued. scancel then removes it from the queue.

    The test does not wait for the second start, because Slurm delays requeued jobs.
    """
    if reason := no_torch():
        pytest.skip(reason)
    options = ["--parsable", "--ntasks-per-node=1", f"--chdir={ROOT}", "--output=/tmp/elastic.out"]
    script = ["examples/elastic.sbatch", "examples/elastic_torch.py", "--epochs", "1000", "--pause", "0.01"]
    env = jobs.environment(HOME="/tmp", HVD_ALLOW_WRITABLE="1")
    out = slurm_hosts.tmp("alpha") / "elastic.out"
    job = slurm.run(slurm_hosts, "alpha", "sbatch", *options, *script, env=env, cwd=str(ROOT)).stdout.strip()
    wait_for(lambda: len(epochs(out)) >= 2, 150, "two epochs")
    slurm.run(slurm_hosts, "alpha", "scancel", "--batch", "--signal=USR1", job)
    wait_for(lambda: " Restarts=1 " in told(slurm_hosts, job), 60, "the job's return to the queue")
    slurm.run(slurm_hosts, "alpha", "scancel", job)
    idle_again(slurm_hosts)
    assert " Restarts=1 " in told(slurm_hosts, job)


RESUMES = """
import json, os, time
import numpy as np, hvd.numpy as hvd
hvd.init()
path, again = "/tmp/requeue.json", os.environ.get("SLURM_RESTART_COUNT", "0")
begin = hvd.broadcast_object(json.load(open(path)) if hvd.rank() == 0 and os.path.exists(path) else 0)
print("begins at step", begin, "start", again, flush=True)
for step in range(begin, begin + 3 if again != "0" else 10**6):
    hvd.allreduce(np.ones(1), name="step")
    if hvd.rank() == 0:
        json.dump(step + 1, open(path + ".new", "w"))
        os.replace(path + ".new", path)
    time.sleep(0.1)
"""


def completed_if_released(slurm_hosts: Cluster, job: str, out: pathlib.Path) -> bool:
    """Returns whether the job has completed.  Raises AssertionError if the job has ended otherwise.

    A waiting job may start 3 s after its requeue: a daemon refuses the credential of a job that starts within the same second.
    Slurm sets a later time again until the job's nodes are free.
    """
    said = told(slurm_hosts, job)
    assert not re.search(r"JobState=(FAILED|TIMEOUT|CANCELLED|NODE_FAIL)", said), f"{said}\n{text_of(out)}"
    requeued = datetime.fromisoformat(re.findall(r"SubmitTime=(\S+)", said)[0])
    if "JobState=PENDING" in said and datetime.now() > requeued + timedelta(seconds=3):
        slurm.run(slurm_hosts, "alpha", "scontrol", "update", f"JobId={job}", "StartTime=now")
    return "JobState=COMPLETED" in said


@pytest.mark.ci
@pytest.mark.parametrize("why", ["requeue", "node failure"])
def test_a_requeued_job_resumes_from_its_checkpoint(slurm_hosts: Cluster, why: str) -> None:
    """The recipe of docs/hosts.md.  Slurm holds a requeued job back for two minutes."""
    folder = slurm_hosts.tmp("alpha")
    out, saved = folder / "requeue.out", folder / "requeue.json"
    out.unlink(missing_ok=True)
    saved.unlink(missing_ok=True)
    (folder / "requeue.sh").write_text(f'#!/bin/sh\nexec {hvdrun.program()} --grace 5 -- {jobs.python()} -c "$RESUMES"\n')
    args = ["--parsable", "--requeue", "-N2", "-n2", "--open-mode=append", "--output=/tmp/requeue.out", "/tmp/requeue.sh"]
    job = slurm.run(slurm_hosts, "alpha", "sbatch", *args, env=jobs.environment(RESUMES=RESUMES)).stdout.strip()
    wait_for(lambda: int(text_of(saved) or 0) >= 3, 90, f"three steps: {text_of(out)}")
    if why == "requeue":
        slurm.run(slurm_hosts, "alpha", "scontrol", "requeue", job)
    else:
        slurm.run(slurm_hosts, "alpha", "scontrol", "update", "NodeName=beta", "State=DOWN", "Reason=test")
    try:
        wait_for(lambda: "JobState=PENDING" in (said := told(slurm_hosts, job)) and " Restarts=1 " in said, 60, "the queue")
        wait_for(lambda: completed_if_released(slurm_hosts, job, out), 150, "the end of its second start")
    finally:
        slurm.run(slurm_hosts, "alpha", "scancel", job)
        slurm.run(slurm_hosts, "alpha", "scontrol", "update", "NodeName=beta", "State=RESUME")
    first, second = (re.findall(rf"begins at step (\d+) start {start}", text_of(out)) for start in "01")
    assert set(first) == {"0"} and len(second) == 2 and min(map(int, second)) >= 3, text_of(out)
    assert int(text_of(saved)) == int(second[0]) + 3
    idle_again(slurm_hosts)


def epochs(out: pathlib.Path) -> list[int]:
    """The numbers of the epochs that have ended."""
    return [int(number) for number in re.findall(r"epoch (\d+): ", text_of(out))]


def text_of(file: pathlib.Path) -> str:
    """The file's text; empty if it does not exist yet."""
    return file.read_text() if file.exists() else ""


def no_torch() -> str | None:
    """The reason why the example cannot run, or None."""
    return None if (ROOT / ".venv/bin/hvdrun").exists() else "the batch script runs what scripts/setup puts into .venv"
