"""Jobs over two hosts through real ssh: the ranks' places, failures, and a clean end on both hosts."""

from __future__ import annotations

import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import time

import pytest

from failures import signalled
from netns.cluster import Cluster
from support import hvdrun
from support.forms import few

mpirun = pytest.mark.parametrize("mpirun", few(hvdrun.mpiruns()))


@pytest.fixture(autouse=True, params=few(["hvdrun", "mpirun"]))
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The launcher that starts the ranks; the hosts pass the variable on."""
    monkeypatch.setenv("HVD_LAUNCHER", request.param)
    return str(request.param)


WHO = "echo $HVD_RANK $HVD_LOCAL_RANK/$HVD_LOCAL_SIZE $HVD_CROSS_RANK/$HVD_CROSS_SIZE $OMPI_COMM_WORLD_RANK $(hostname)"


def run(hosts: Cluster, *args: str, **options: object) -> subprocess.CompletedProcess[str]:
    """hvdrun on alpha."""
    first = args[:1] if args[0] == "doctor" else ()
    done = hosts.run("alpha", [hvdrun.program(), *first, "--start-timeout", "60", *args[len(first) :]], timeout=90, **options)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, hvdrun.said(done.stderr))


def nothing_left(hosts: Cluster, limit_seconds: float = 6.0) -> None:
    """No process of a job is left on either host, within 3 s on an idle machine."""
    deadline = time.monotonic() + hvdrun.within(limit_seconds)
    while left := {h: p for h in hosts.names if (p := hosts.processes(h))}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@mpirun
@pytest.mark.parametrize(
    ("where", "lines"),
    [
        ("alpha:1,beta:2", ["0 0/1 0/2 0 alpha", "1 0/2 1/2 1 beta", "2 1/2 0/1 2 beta"]),
        ("beta:2,alpha:1", ["0 0/2 0/2 0 beta", "1 1/2 0/1 1 beta", "2 0/1 1/2 2 alpha"]),
        ("10.77.0.2:2", ["0 0/2 0/1 0 beta", "1 1/2 0/1 1 beta"]),
    ],
)
def test_ranks_land_where_planned(two_hosts: Cluster, mpirun: str, where: str, lines: list[str]) -> None:
    """Ranks follow the order of -H, on whichever host hvdrun runs."""
    done = run(two_hosts, "--mpirun", mpirun, "-H", where, "--", "sh", "-c", WHO)
    assert done.returncode == 0, done.stderr
    assert sorted(line.split("] ", 1)[1] for line in done.stdout.splitlines()) == lines
    nothing_left(two_hosts)


def test_a_manifest_with_an_agent_of_its_own(two_hosts: Cluster) -> None:
    """The agent of --manifest replaces ssh, and gets the job's secret on its stdin."""
    (two_hosts.tmp("alpha") / "agent").write_text('#!/bin/sh\necho "$1" >>/tmp/agent.log\nexec ssh -T -o BatchMode=yes "$@"\n')
    (two_hosts.tmp("alpha") / "agent").chmod(0o755)
    hosts = '[{"address": "alpha"}, {"address": "10.77.0.2", "slots": 2}]'
    text = '{"version": 1, "source": "test", "launch_agent": ["/tmp/agent", "{host}"], "hosts": ' + hosts + "}"
    (two_hosts.tmp("alpha") / "m.json").write_text(text)
    done = run(two_hosts, "--manifest", "/tmp/m.json", "--", "sh", "-c", WHO)
    assert done.returncode == 0, done.stderr
    lines = ["0 0/1 0/2 0 alpha", "1 0/2 1/2 1 beta", "2 1/2 0/1 2 beta"]
    assert sorted(line.split("] ", 1)[1] for line in done.stdout.splitlines()) == lines
    assert (two_hosts.tmp("alpha") / "agent.log").read_text() == "10.77.0.2\n"
    for name in ("agent", "agent.log", "m.json"):
        (two_hosts.tmp("alpha") / name).unlink()
    nothing_left(two_hosts)


@mpirun
def test_a_pickle_is_only_where_hvdrun_starts(two_hosts: Cluster, mpirun: str) -> None:
    """The pickle is larger than a frame. hvdrun sends it to the first rank of each host, which passes it on."""
    (two_hosts.tmp("alpha") / "job.pkl").write_bytes(pickle.dumps((len, ("x" * 9_000_000,), {}), protocol=5))
    args = ["--mpirun", mpirun, "-H", "alpha:2,beta:2", "--python", sys.executable, "--results", "/tmp/results", "/tmp/job.pkl"]
    done = run(two_hosts, *args)
    assert done.returncode == 0, done.stderr
    records = (two_hosts.tmp("alpha") / "results").read_bytes()
    assert records.count(pickle.dumps(9_000_000, protocol=5)[2:]) == 4
    (two_hosts.tmp("alpha") / "results").unlink()


@mpirun
def test_a_remote_ranks_exit_code(two_hosts: Cluster, mpirun: str) -> None:
    """The verdict names the rank and its host; the other ranks are stopped."""
    script = '[ "$HVD_RANK" = 2 ] && { echo bad >&2; exit 9; }; sleep 100'
    done = run(two_hosts, "--mpirun", mpirun, "-H", "alpha:1,beta:2", "--", "sh", "-c", script)
    assert done.returncode == 9
    assert "[2 beta] bad\n" in done.stderr
    assert "hvdrun: rank 2 on beta ended with exit code 9\n        ranks 0-1 were stopped\n" in done.stderr
    nothing_left(two_hosts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-p", "2223"], "hvdrun: nothing listens for ssh on beta\n        is sshd running there?"),
        (
            [
                "--ssh-program",
                "ssh -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null",
            ],
            "hvdrun: the ssh key of beta is not known here\n        ssh beta once by hand",
        ),
        (
            ["--ssh-program", "ssh -F none -o StrictHostKeyChecking=no -o IdentityFile=/none -o IdentitiesOnly=yes"],
            "hvdrun: beta refused the ssh login\n        ssh-copy-id beta",
        ),
        (["--ssh-program", "/nowhere/ssh"], "hvdrun: ssh cannot be run here"),
    ],
)
@mpirun
def test_ssh_troubles_are_told_with_the_host(two_hosts: Cluster, mpirun: str, options: list[str], message: str) -> None:
    """mpirun ends as soon as its agent fails."""
    done = run(two_hosts, "--mpirun", mpirun, *options, "-H", "alpha:1,beta:1", "--", "true")
    assert done.stderr.startswith(message), done.stderr
    assert done.returncode == 4
    nothing_left(two_hosts)


@mpirun
def test_a_host_that_never_answers(two_hosts: Cluster, mpirun: str) -> None:
    """The time-out names its ranks; mpirun, which would wait for ever, is killed."""
    slow = ["--start-timeout", "4", "--ssh-program", "sh -c 'sleep 100' --"]
    done = run(two_hosts, "--mpirun", mpirun, *slow, "-H", "alpha:1,beta:2", "--", "true")
    assert done.returncode == 6
    assert "did not come up within 4 s" in done.stderr
    nothing_left(two_hosts)


def test_ctrl_c_while_a_host_does_not_answer(two_hosts: Cluster) -> None:
    """hvdrun ends at once: no rank runs yet, so there is no grace period."""
    slow = ["--grace", "60", "--ssh-program", "sh -c 'sleep 100' --", "-H", "alpha:1,beta:1"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with two_hosts.popen("alpha", [hvdrun.program(), *slow, "--", "true"], **pipes) as job:
        running = lambda: "sleep 100" in two_hosts.processes("alpha").values()  # noqa: E731
        hvdrun.wait_until(running, "the way to beta")
        begin = time.monotonic()
        two_hosts.signal(job, signal.SIGINT)
        assert job.wait(60) == 130
        assert time.monotonic() - begin < hvdrun.within(10)
        assert job.stdout is not None
        assert job.stdout.read() == ""
    nothing_left(two_hosts)


@mpirun
@pytest.mark.parametrize("who", ["hvdrun", "mpirun", "ssh", "daemon"])
def test_kill_9_leaves_nothing_on_any_host(
    two_hosts: Cluster, mpirun: str, who: str, launcher: str, tmp_path: pathlib.Path
) -> None:
    """Including children that left their session."""
    if launcher == "hvdrun" and who == "mpirun":
        who = "daemon here"
    runaways = "setsid sleep 778 & env -i setsid sleep 778 & sleep 778"
    argv = [hvdrun.program(), "--mpirun", mpirun, "-H", "alpha:1,beta:2", "--", "sh", "-c", runaways]
    with (tmp_path / "err").open("w") as err, two_hosts.popen("alpha", argv, stdin=subprocess.DEVNULL, stderr=err) as job:
        deadline = time.monotonic() + 90
        while sum(line == "sleep 778" for h in two_hosts.names for line in two_hosts.processes(h).values()) < 9:
            assert time.monotonic() < deadline, (tmp_path / "err").read_text()
            time.sleep(0.1)
        pattern = {
            "hvdrun": re.escape(hvdrun.program()),
            "mpirun": ".*allow-run-as-root",
            "ssh": r"(\S*/)?ssh ",
            "daemon": r"\S*\b(orted |prted |hvdrank --daemon )",
            "daemon here": r"\S*hvdrank --daemon ",
        }
        host = "beta" if who == "daemon" else "alpha"
        victims = [p for p, line in two_hosts.processes(host).items() if re.match(pattern[who], line)]
        os.kill(victims[0], signal.SIGKILL)
        code = job.wait(60)
    assert code != 0
    assert code == 5 or launcher == "mpirun" or who == "hvdrun"
    nothing_left(two_hosts)
    if who in ("ssh", "daemon"):  # its guards may report a daemon's end before mpirun does
        said = hvdrun.said((tmp_path / "err").read_text())
        assert re.match(r"hvdrun: (mpirun lost its connection to beta|rank [12] on beta is lost)", said), said


@mpirun
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_over_two_hosts(two_hosts: Cluster, launcher: str, mpirun: str, end: signal.Signals) -> None:
    """Each also reaches the ranks there, and one Ctrl-C is enough.

    mpirun sometimes ends a host's guards before they have searched for remains there, and hvdrun says so.
    """
    (two_hosts.tmp("beta") / "job.py").write_text(signalled.SCRIPT)
    (two_hosts.tmp("alpha") / "job.py").write_text(signalled.SCRIPT)
    argv = [hvdrun.program(), "--mpirun", mpirun, "-H", "beta:2,alpha:1", *hvdrun.python_args(), "/tmp/job.py"]
    with two_hosts.popen(
        "alpha", argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        extra = "could not check" if launcher == "mpirun" else None
        signalled.follow(job, lambda number: two_hosts.signal(job, number), 3, end, extra)
    nothing_left(two_hosts)


def test_a_live_job_over_two_hosts_is_shown_and_ended(two_hosts: Cluster) -> None:
    """ps, stacks and kill on hvdrun's host; another job beside it is left alone."""

    def start(seconds: int) -> subprocess.Popen[str]:
        command = ["sh", "-c", f"echo up; exec sleep {seconds}"]
        argv = [hvdrun.program(), "-H", "alpha:1,beta:2", "--", *command]
        return two_hosts.popen(
            "alpha", argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(*words: str) -> str:
        return two_hosts.run("alpha", [hvdrun.program(), *words], timeout=60).stdout

    with start(701) as first, start(702) as second:
        for job in (first, second):
            assert job.stdout is not None
            assert sorted(job.stdout.readline() for _ in range(3)) == ["[0 alpha] up\n", "[1 beta] up\n", "[2 beta] up\n"]
        rows = [line.split() for line in ask("ps").splitlines()[1:]]
        assert sorted(row[2] for row in rows) == ["3", "3"]
        assert [row[5] for row in rows] == ["alpha,beta"] * 2
        killed = rows[0][0]
        stacks = ask("stacks", killed)
        assert re.findall(r"^rank (\d) on (\w+) ", stacks, flags=re.M) == [("0", "alpha"), ("1", "beta"), ("2", "beta")]
        assert ask("kill", killed) == f"ending job {killed}\n"
        hvdrun.wait_until(lambda: first.poll() is not None or second.poll() is not None, "the job's end")
        ended, other = (first, second) if first.poll() is not None else (second, first)
        assert ended.wait(60) == 143
        (left,) = [line.split()[0] for line in ask("ps").splitlines()[1:]]
        assert left != killed
        assert other.poll() is None
        ask("kill", left)
        assert other.wait(60) == 143
    nothing_left(two_hosts)


def test_the_doctor(two_hosts: Cluster) -> None:
    """A row for each host, and a line with the remedy for each problem, in a short time."""
    python = ["--python", sys.executable]
    (two_hosts.tmp("alpha") / "job.py").write_text("import json, no_such_module\n")
    done = run(two_hosts, "doctor", *python, "-H", "alpha:1,beta:2", "/tmp/job.py")
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["host", "way", "clock"]
    assert lines[1].split()[:3] == ["alpha", "here", "same"]
    assert lines[2].split()[:3] == ["beta", "yes", "same"]
    assert lines[3].startswith("hosts reach this one at 10.77.0.1: ")
    assert f"problem alpha, beta: lacks no_such_module\n        there: {sys.executable} -m pip install" in done.stdout
    assert "cannot reach" not in done.stdout
    assert done.returncode == 4
    done = run(two_hosts, "doctor", "-H", "alpha:1,beta:2", "--", "true")
    assert done.stdout.endswith("nothing stands in the way of a job\n"), done.stdout
    assert done.returncode == 0
    done = run(two_hosts, "doctor", "-p", "2223", "-H", "alpha:1,beta:2", "--", "true")
    assert "problem beta: nothing listens for ssh on beta\n        is sshd running there?" in done.stdout
    assert "port 2223: Connection refused\n" in done.stdout  # ssh's own message
    assert "hosts reach this one at" not in done.stdout  # it was not tested
    assert done.returncode == 4
    done = run(two_hosts, "doctor", "-H", "alpha:1,beta:1,nowhere:1", "--", "true")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["host", "alpha", "beta", "nowhere"]
    assert any(line.startswith("problem nowhere: unknown host: -H:") for line in lines)
    assert done.returncode == 4
    nothing_left(two_hosts)


def test_the_doctor_over_three_hosts(three_hosts: Cluster) -> None:
    """Hosts that cannot reach each other, and a module only in this user's PYTHONPATH.  About 2 s on an idle machine."""
    for host in three_hosts.names:
        (three_hosts.tmp(host) / "own").mkdir(exist_ok=True)
        (three_hosts.tmp(host) / "own/of_mine.py").touch()
    (three_hosts.tmp("alpha") / "job.py").write_text("import of_mine\n")
    cut = ["ip", "route", "add", "unreachable", "10.77.0.3/32"]
    assert three_hosts.run("beta", cut).returncode == 0
    argv = ["doctor", "--python", sys.executable, "-H", "alpha:1,beta:1,gamma:1", "/tmp/job.py"]
    begin = time.monotonic()
    try:
        done = run(three_hosts, *argv, env={"PYTHONPATH": "/tmp/own"})
    finally:
        assert three_hosts.run("beta", ["ip", "route", "del", "unreachable", "10.77.0.3/32"]).returncode == 0
    print(f"the doctor took {time.monotonic() - begin:.1f} s")
    assert "note    beta: cannot reach gamma\n" in done.stdout, done.stdout
    assert "lacks" not in done.stdout
    assert "note    gamma: cannot reach beta\n" in done.stdout  # its answer does not return
    assert "alpha: cannot reach" not in done.stdout


def set_link(hosts: Cluster, state: str) -> None:
    """Cuts beta off, or reconnects it."""
    assert hosts.run("beta", ["ip", "link", "set", "eth0", state]).returncode == 0


@pytest.mark.ci
def test_a_network_cut_names_the_host_and_ends_all_ranks(two_hosts: Cluster) -> None:
    """Within 15 s on an idle machine, on both sides of the cut."""
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1", "--", "sh", "-c", "echo up; sleep 779"]
    with two_hosts.popen(
        "alpha", argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        for _ in range(2):
            assert job.stdout.readline().endswith("] up\n")
        set_link(two_hosts, "down")
        cut = time.monotonic()
        try:
            assert job.wait(60) == 5
            assert hvdrun.said(job.stderr.read()).startswith(
                "hvdrun: rank 1 on beta is lost: its host sends no messages any more"
            )
            nothing_left(two_hosts, 30)  # also mpirun's daemon, though the network is still down
            print(f"all has ended {time.monotonic() - cut:.1f} s after the cut")
        finally:
            set_link(two_hosts, "up")


@pytest.mark.nightly
def test_a_network_cut_between_two_hosts_is_named(three_hosts: Cluster) -> None:
    """hvdrun, on a third host, reaches both."""
    script = (
        "import time, numpy, hvd.numpy as hvd\nhvd.init()\nx = numpy.ones(4)\n"
        "while True:\n    hvd.allreduce(x, name='grad')\n    if hvd.rank() == 0: print('up', flush=True)\n    time.sleep(0.1)\n"
    )
    for host in three_hosts.names:
        (three_hosts.tmp(host) / "job.py").write_text(script)
    argv = [hvdrun.program(), "--grace", "1", *hvdrun.python_args(), "-H", "beta:1,gamma:1", "/tmp/job.py"]
    env = {"PYTHONPATH": str(pathlib.Path(os.environ.get("HVD_BUILD_DIR", "build")).absolute() / "src/python")}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with three_hosts.popen("alpha", argv, env=env, text=True, **pipes) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "[0 beta] up\n"
        for host, other in (("beta", "gamma"), ("gamma", "beta")):  # the frames are dropped silently
            nowhere = ["lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"]
            cut = three_hosts.run(host, ["ip", "neigh", "replace", three_hosts.address(other), *nowhere])
            assert cut.returncode == 0, cut.stderr
        at = time.monotonic()
        ranks = [hvdrun.next_line(job.stderr) for _ in range(2)]  # each reports that the other does not answer
        lines = [hvdrun.next_line(job.stderr) for _ in range(2)]
        print(f"told {time.monotonic() - at:.1f} s after the cut: {ranks} {lines}")
        three_hosts.signal(job, signal.SIGTERM)
        assert job.wait(30) == 143
    assert all(re.search(r"hvd: rank \d \(10\.77\.0\.\d\) has not answered for \d\.\d s", line) for line in ranks), ranks
    assert re.match(r"hvdrun: 2 ranks have waited \d+ s for allreduce.grad, and all have submitted it\n", lines[0]), lines
    assert re.match(r" +(beta gets no answer from gamma|gamma gets no answer from beta): the network", lines[1]), lines
    for host in ("beta", "gamma"):
        three_hosts.run(host, ["ip", "neigh", "flush", "all", "nud", "permanent"])
    nothing_left(three_hosts)


@pytest.mark.nightly
@pytest.mark.parametrize("missing", ["[5]", "[4, 5]", "[0]"])
def test_a_hang_over_three_hosts_is_told(three_hosts: Cluster, missing: str) -> None:
    """The message names the missing rank and its place, 5 s after the wait has begun, on any host, with some slack here."""
    script = (
        "import time, numpy, hvd.numpy as hvd\nhvd.init()\nx = numpy.ones(4)\n"
        "for i in range(20): hvd.allreduce(x, name='grad')\n"
        f"if hvd.rank() in {missing}:\n"
        "    print('hangs', flush=True)\n    while True: time.sleep(0.1)\n"
        "hvd.allreduce(x, name='grad')\n"
    )
    for host in three_hosts.names:
        (three_hosts.tmp(host) / "hang.py").write_text(script)
    argv = [hvdrun.program(), "--grace", "1", *hvdrun.python_args(), "-H", "alpha:2,beta:2,gamma:2", "/tmp/hang.py"]
    env = {"PYTHONPATH": str(pathlib.Path(os.environ.get("HVD_BUILD_DIR", "build")).absolute() / "src/python")}
    with three_hosts.popen(
        "alpha", argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        assert job.stdout.readline().endswith("] hangs\n")
        at = time.monotonic()
        line = hvdrun.next_line(job.stderr)
        print(f"told {time.monotonic() - at:.1f} s after the wait began: {line}")
        three_hosts.signal(job, signal.SIGTERM)
        assert job.wait(30) == 143
    assert re.match(r"hvdrun: ranks? [0-9-]+ on (alpha|gamma) (is|are) in hang.py:7; [45] ranks have waited \d+ s for", line), (
        line
    )
    nothing_left(three_hosts)


@pytest.mark.nightly
def test_a_short_blackout_is_survived(two_hosts: Cluster) -> None:
    """Five seconds without a network."""
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1", "--", "sh", "-c", "echo up; sleep 25; echo over"]
    with two_hosts.popen("alpha", argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        for _ in range(2):
            assert job.stdout.readline().endswith("] up\n")
        set_link(two_hosts, "down")
        time.sleep(5)
        set_link(two_hosts, "up")
        assert job.wait(90) == 0
        assert job.stdout.read().count("] over\n") == 2
    nothing_left(two_hosts)
