"""The hosts themselves are separate, and leave nothing behind."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time

from netns import jobs
from netns.capture import Capture
from netns.cluster import Cluster, children, wait_for


def test_hosts_are_apart(two_hosts: Cluster) -> None:
    (two_hosts.tmp("alpha") / "here").write_text("x")
    tree = pathlib.Path(__file__).resolve()
    ours = {tree.parts[2]} if tree.is_relative_to("/tmp") else set()  # a checkout in /tmp is visible on its hosts
    seen = two_hosts.run("alpha", ["ssh", "beta", "hostname; ls /tmp /dev/shm; echo end"]).stdout
    assert [word for word in seen.split() if word not in ours] == ["beta", "/dev/shm:", "/tmp:", "end"]
    assert set(two_hosts.run("alpha", ["ls", "/tmp"]).stdout.split()) - ours == {"here"}
    assert two_hosts.run("alpha", ["ssh", "gamma", "true"]).returncode == 255


def test_a_signal_reaches_the_program_on_the_host(two_hosts: Cluster) -> None:
    process = two_hosts.popen("beta", ["sleep", "60"])
    wait_for(lambda: "sleep 60" in two_hosts.processes("beta").values(), 60, "sleep on beta")
    two_hosts.signal(process, signal.SIGKILL)
    assert process.wait(timeout=60) != 0
    assert "sleep 60" not in two_hosts.processes("beta").values()


def test_the_capture_finds_what_is_sent_in_clear(two_hosts: Cluster) -> None:
    send = "import socket,sys; s=socket.create_connection(('beta', 5000)); [s.send(b'many words, ' * 300) for _ in range(200)]"
    take = "import socket; c=socket.create_server(('', 5000)).accept()[0]\nwhile c.recv(65536): pass"
    with Capture(two_hosts) as wire:
        taker = two_hosts.popen("beta", ["python3", "-c", take])
        wait_for(lambda: any(port == 5000 for _, port in jobs.listening(two_hosts, "beta")), 60, "the listener")
        assert two_hosts.run("alpha", ["python3", "-c", send]).returncode == 0
        assert taker.wait(timeout=60) == 0
        assert two_hosts.run("alpha", ["ssh", "beta", "echo a line that ssh hides"]).returncode == 0
    assert len(max(wire.streams.values(), key=len)) == 200 * 300 * len("many words, ")
    assert wire.find(b"words, many")
    assert not wire.find(b"a line that ssh hides")
    assert wire.find(b"OpenSSH")


def test_nothing_stays(tmp_path: pathlib.Path) -> None:
    with Cluster(hosts=2) as cluster:
        cluster.run("alpha", ["sh", "-c", "setsid sleep 321 >/dev/null 2>&1 & true"])
        wait_for(lambda: "sleep 321" in cluster.processes("alpha").values(), 60, "the sleeper")
        pids = [cluster.init_pid("alpha"), cluster.init_pid("beta"), *cluster.processes("alpha")]
        assert len(pids) == 3
    assert not cluster.state.exists()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 60, "the end of all processes")


def test_a_killed_owner_takes_its_hosts_along() -> None:
    program = (
        "import sys, time; sys.path.insert(0, 'tests'); from netns.cluster import Cluster; c = Cluster(1); "
        "print(c.init_pid('alpha'), flush=True); time.sleep(60)"
    )
    root = pathlib.Path(__file__).resolve().parents[2]
    owner = subprocess.Popen(["python3", "-c", program], cwd=root, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert children(owner.pid)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 60, "the end of the host")


def test_time_is_bounded() -> None:
    cluster = Cluster(hosts=1, ttl_seconds=1.0)
    pid = cluster.init_pid("alpha")
    time.sleep(1.0)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 60, "the end of the host")
    cluster.close()
