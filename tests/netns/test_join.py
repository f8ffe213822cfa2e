"""Hosts that join a job at hvdrun's port (Kubernetes without sshd): late, lost, doubled and foreign ones."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from netns import fixtures, jobs, pods
from netns.capture import Capture
from netns.cluster import Cluster, wait_for
from support import hvdrun
from support.forms import few

HERE = pathlib.Path(__file__).resolve().parent
SUM = "import numpy as np, hvd.numpy as hvd\nhvd.init()\ns = hvd.allreduce(np.ones(2), op=hvd.Sum)\nprint('sum', int(s[0]))\n"
WAIT = "import time, hvd.numpy as hvd\nhvd.init()\nprint('ready', flush=True)\ntime.sleep(100)\n"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Three hosts; hvdrun uses no ssh between them."""
    for cluster in fixtures.make(3):
        for host in cluster.names:
            (cluster.tmp(host) / "sum.py").write_text(SUM)
            (cluster.tmp(host) / "wait.py").write_text(WAIT)
        yield cluster


@pytest.fixture(autouse=True)
def nothing_left(nodes: Cluster) -> Iterator[None]:
    """After each test no process is left, and no folder."""
    yield
    wait_for(lambda: not any(nodes.processes(host) for host in nodes.names), hvdrun.within(20), "the end of all processes")
    left = [str(path) for host in nodes.names for path in nodes.tmp(host).glob("hvd-*")]
    assert not left, left


def test_early_and_late_pods_form_one_job(nodes: Cluster) -> None:
    """A worker that comes before the launcher waits; so does the launcher for a late one.  All pods get the exit code."""
    token = pods.give_token(nodes, *nodes.names)
    with Capture(nodes) as wire:
        early = pods.worker(nodes, "gamma", "--slots", "2")
        pods.line_with(early, "Connection refused")
        job = pods.launcher(nodes, "-np", "4", "/tmp/sum.py", TOLD="a" + token)
        assert "joined: 2 slots on 1 host (gamma) of 4 slots" in pods.line_with(job, "joined: ")
        late = pods.worker(nodes, "beta", "--slots", "2")
        code, out, err = pods.ended(job)
    assert code == 0, out + err
    assert sorted(out.splitlines()) == [f"[{rank} {'beta' if rank < 2 else 'gamma'}] sum 4" for rank in range(4)], out + err
    for worker in (early, late):
        code, _, err = pods.ended(worker, 20)
        assert code == 0, err
        assert "the job is done" in err
    assert not wire.find(token.encode()), "the token crosses the network in clear"


@pytest.mark.parametrize("code", few([3, 137]))
def test_every_pod_ends_with_the_jobs_exit_code(nodes: Cluster, code: int) -> None:
    """A Job controller sees the failure on each pod."""
    pods.give_token(nodes, "alpha", "beta")
    worker = pods.worker(nodes, "beta")
    how = f"exit {code}" if code < 128 else "kill -9 $$"
    job = pods.launcher(nodes, "-np", "1", "--", "sh", "-c", how)
    got = pods.ended(job)
    assert got[0] == code, got
    told = pods.ended(worker, 20)
    assert told[0] == code, told
    assert f"the job has ended with exit code {code}" in told[2]


@pytest.mark.ci
def test_too_few_pods_within_the_limit(nodes: Cluster) -> None:
    pods.give_token(nodes, "alpha", "beta")
    worker = pods.worker(nodes, "beta", "--slots", "2")
    told = nodes.tmp("alpha") / "termination-log"
    told.touch()
    code, _, err = pods.ended(pods.launcher(nodes, "-np", "3", "true", limit=10, HVD_TERMINATION_LOG="/tmp/termination-log"))
    assert code == 6, err
    assert "no more came in 10 s" in told.read_text()
    assert "2 slots on 1 host (beta) joined, and the job needs 3 slots; no more came in 10 s" in err
    code, _, err = pods.ended(worker, 20)
    assert code == 6, err
    assert "the job did not start" in err


def test_no_launcher_within_the_limit(nodes: Cluster) -> None:
    pods.give_token(nodes, "beta")
    code, _, err = pods.ended(pods.worker(nodes, "beta", limit=1))
    assert code == 4, err
    assert "no job took this host in 1 s: Connection refused" in err


def test_a_pod_with_another_token(nodes: Cluster) -> None:
    """A host with a wrong token starts no rank and prints the reason. The job continues without this host."""
    pods.give_token(nodes, "alpha", "beta")
    pods.give_token(nodes, "gamma")
    job = pods.launcher(nodes, "-np", "1", "/tmp/sum.py")
    pods.line_with(job, "waiting up to")
    stranger = pods.worker(nodes, "gamma", limit=8)
    code, _, err = pods.ended(stranger)
    assert code == 4, err
    assert "has not accepted this token" in err
    worker = pods.worker(nodes, "beta")
    code, out, err = pods.ended(job)
    assert (code, out) == (0, "[0 beta] sum 1\n"), out + err
    assert "gamma" not in err
    assert pods.ended(worker)[0] == 0


def test_a_pod_dies(nodes: Cluster) -> None:
    """The job ends, names the host, and the other pods get its exit code."""
    pods.give_token(nodes, *nodes.names)
    workers = {host: pods.worker(nodes, host) for host in ("beta", "gamma")}
    job = pods.launcher(nodes, "-np", "2", "--grace", "2", "/tmp/wait.py")
    assert all("ready" in hvdrun.read_line(job.stdout) for _ in range(2)), pods.ended(job)
    pods.crash(nodes, "gamma")
    code, _, err = pods.ended(job, 20)
    assert code not in (0, 70), err
    assert "gamma" in err, err
    assert pods.ended(workers["beta"], 20)[0] == code
    pods.ended(workers["gamma"])


@pytest.mark.ci
def test_a_pod_dies_before_the_start_and_comes_again(nodes: Cluster) -> None:
    """The launcher may not have noticed the end of a host's first connection when the host reconnects. The second connection
    replaces the first."""
    pods.give_token(nodes, "alpha", "beta", "gamma")
    job = pods.launcher(nodes, "-np", "2", "/tmp/sum.py")
    first = pods.worker(nodes, "beta")
    pods.line_with(first, "joined 10.77.0.1:4999 as beta")
    second = pods.worker(nodes, "beta")
    code, _, err = pods.ended(first, 20)
    assert code == 4, err
    assert "another host has joined with the name beta" in err
    pods.line_with(second, "joined")
    pods.kill(second)
    second.wait(60)
    third = pods.worker(nodes, "beta")
    other = pods.worker(nodes, "gamma")
    code, out, err = pods.ended(job)
    assert sorted(out.splitlines()) == ["[0 beta] sum 2", "[1 gamma] sum 2"], out + err
    assert pods.ended(third)[0] == pods.ended(other)[0] == code == 0


@pytest.mark.ci
def test_the_launcher_is_killed(nodes: Cluster) -> None:
    """The workers' ranks end, and the pods fail, so that their controller starts them again."""
    pods.give_token(nodes, "alpha", "beta")
    worker = pods.worker(nodes, "beta")
    job = pods.launcher(nodes, "-np", "1", "--grace", "1", "/tmp/wait.py")
    assert "ready" in hvdrun.read_line(job.stdout)
    pods.crash(nodes, "alpha")
    code, _, err = pods.ended(worker)
    assert code == 5, err
    assert "the connection was lost before the job's end" in err
    pods.ended(job)


@pytest.mark.parametrize("whom", few(["worker", "launcher"]))
def test_kubernetes_tells_a_pod_to_end(nodes: Cluster, whom: str) -> None:
    """SIGTERM to the first process of a pod: ranks may save, within the grace period.  A pod without ranks changes nothing."""
    pods.give_token(nodes, *nodes.names)
    script = "import hvd.numpy as hvd, time\nhvd.init()\nprint('ready', flush=True)\n"
    script += "while not hvd.should_stop(): time.sleep(0.02)\nprint('saved', flush=True)\n"
    for host in ("alpha", "beta"):
        (nodes.tmp(host) / "saves.py").write_text(script)
    worker = pods.worker(nodes, "beta")
    job = pods.launcher(nodes, "-np", "1", "--grace", "10", "/tmp/saves.py")
    assert "ready" in hvdrun.read_line(job.stdout)
    surplus = pods.worker(nodes, "gamma")
    pods.line_with(surplus, "joined")
    pods.kill(surplus, signal.SIGTERM)
    assert pods.ended(surplus)[0] == 143
    time.sleep(0.5)  # the launcher's turn
    pods.kill(job if whom == "launcher" else worker, signal.SIGTERM)
    code, out, err = pods.ended(job)
    assert "saved" in out, out + err
    assert code == 143, err
    assert err.count("a host was told to end") == (whom == "worker"), err  # the surplus host does not count
    assert pods.ended(worker)[0] == 143


@pytest.mark.ci
def test_pods_come_and_go_in_an_elastic_job(nodes: Cluster) -> None:
    """A lost pod's ranks are replaced when the pod has come again."""
    pods.give_token(nodes, *nodes.names)
    script = HERE.parent / "netns" / "elastic_pods.py"
    for host in nodes.names:
        (nodes.tmp(host) / "elastic.py").write_text(script.read_text())
    workers = {host: pods.worker(nodes, host) for host in ("beta", "gamma")}
    job = pods.launcher(nodes, "-np", "2", "--min-np", "1", "--max-np", "2", "/tmp/elastic.py")
    until(job, "size 2")
    pods.crash(nodes, "gamma")
    pods.ended(workers["gamma"])
    until(job, "size 1")
    workers["gamma"] = pods.worker(nodes, "gamma")
    until(job, "size 2")
    (nodes.tmp("beta") / "over").touch()
    (nodes.tmp("gamma") / "over").touch()
    code, out, err = pods.ended(job)
    assert code == 0, out + err
    assert [pods.ended(worker)[0] for worker in workers.values()] == [0, 0]


def until(job: subprocess.Popen[str], words: str) -> None:
    """Reads the job's output until a line has these words.  The job is told to end if it does not say them in time."""
    said = []
    limit = threading.Timer(60, pods.kill, (job, signal.SIGTERM))
    limit.start()
    while words not in (line := hvdrun.read_line(job.stdout)):
        said.append(line)
        assert line, f"{words}: not said in\n{''.join(said)}{pods.ended(job)[2]}"
    limit.cancel()


def test_strangers_at_the_port(nodes: Cluster) -> None:
    """While hosts join and the job runs, hundreds of strangers connect. They send nothing, garbage or half a handshake. They
    may use up the launcher's descriptors for unauthenticated connections, but must not disturb the job."""
    pods.give_token(nodes, "alpha", "beta")
    job = pods.launcher(nodes, "-np", "1", "/tmp/sum.py", files=300)
    pods.line_with(job, "waiting up to")
    stranger = nodes.popen(
        "gamma",
        ["python3", str(HERE / "port_strangers.py"), nodes.address("alpha"), str(pods.PORT)],
        stdin=subprocess.PIPE,
        **pods.PIPES,
    )
    try:
        assert hvdrun.read_line(stranger.stdout) == "connected\n", stranger.communicate(timeout=10)
        before = [jobs.resident_bytes(pid) for pid, line in nodes.processes("alpha").items() if "hvdrun" in line]
        worker = pods.worker(nodes, "beta")
        code, out, err = pods.ended(job)
        assert (code, out) == (0, "[0 beta] sum 1\n"), out + err
        assert len(before) >= 1
        assert max(before) < 200 << 20
        assert pods.ended(worker)[0] == 0
    finally:
        assert stranger.stdin is not None
        stranger.stdin.close()
        stranger.wait(60)


def test_files_that_are_no_token(nodes: Cluster) -> None:
    """Short, readable by all, of several words, missing: each is refused, with the reason."""
    file = nodes.tmp("alpha") / "token"
    for text, mode, said in (
        ("short", 0o400, "at least 32 letters"),
        ("x" * 40, 0o444, "every user of this host can read the token"),
        ("x" * 40, 0o422, "token"),
        ("x" * 40 + " y", 0o400, "one word"),
    ):
        file.unlink(missing_ok=True)
        file.write_text(text)
        file.chmod(mode)
        for argv in (["--listen", "4999", "-np", "1", "true"], ["join", "alpha:1"]):
            done = nodes.run("alpha", [hvdrun.program(), *argv], env={"HVD_TOKEN_FILE": pods.TOKEN})
            assert done.returncode == 2, done.stderr
            assert said in done.stderr
    done = nodes.run("alpha", [hvdrun.program(), "join", "alpha:1"])
    assert done.returncode == 2
    assert "--token-file" in done.stderr


@pytest.mark.ci
def test_the_port_is_taken(nodes: Cluster) -> None:
    pods.give_token(nodes, "alpha")
    first = pods.launcher(nodes, "-np", "1", "true")
    pods.line_with(first, "waiting up to")
    code, _, err = pods.ended(pods.launcher(nodes, "-np", "1", "true"))
    assert code == 4, err
    assert "4999" in err
    pods.kill(first, signal.SIGTERM)
    assert pods.ended(first)[0] == 143
