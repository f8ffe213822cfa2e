"""Spark standalone on three hosts in network namespaces: no ssh, no shared work folder, one job at a time and two at once."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import pytest

from netns.cluster import Cluster, wait_for

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


def nothing_left(cluster: Cluster) -> None:
    """Waits until no host has a process of the job."""
    for host in cluster.names:
        s.wait_until_clean(lambda host=host: cluster.processes(host), 5.0)
        wait_for(lambda host=host: s.files_left(cluster, host) == [], 60.0, f"the end of {s.files_left(cluster, host)}")


def test_ranks_on_three_hosts(driver: s.Driver, three_hosts: Cluster) -> None:
    """A job on all slots: ranks are numbered host by host, and each rank runs in its executor's folder."""
    values = driver.good("all_results", np=6, limit=110.0)
    assert [value["rank"] for value in values] == list(range(6))
    hosts = [value["host"] for value in values]
    assert sorted(set(hosts)) == [three_hosts.address(name) for name in three_hosts.names]
    assert hosts == [host for host in dict.fromkeys(hosts) for _ in range(2)]
    assert [value["local"] for value in values] == [0, 1] * 3
    assert [value["cross"] for value in values] == [0, 0, 1, 1, 2, 2]
    assert all("/work/app-" in value["cwd"] for value in values)
    assert all(value["sum"] == [21.0] * 3 for value in values)


@pytest.mark.nightly
def test_a_part_of_the_slots(driver: s.Driver) -> None:
    """Fewer ranks than slots."""
    assert driver.good("runner", np=4)["size"] == 4


def test_a_module_brought_by_spark(driver: s.Driver, standalone: s.Standalone) -> None:
    """The folder of sc.addPyFile has a different name on each host."""
    (standalone.folder / "brought_along.py").write_text("WORD = 'here'\n")
    assert driver.good("py_file", path=str(standalone.folder / "brought_along.py"), np=6) == ["here"] * 6


def test_two_jobs_at_once(driver: s.Driver, three_hosts: Cluster) -> None:
    """Each on a part of the slots; they leave no process, and no file in /tmp or /dev/shm."""
    assert driver.good("two_at_once", np=3) == {"first": 3, "second": 3}
    nothing_left(three_hosts)


def test_manifest_for_hvdrun(driver: s.Driver, standalone: s.Standalone, three_hosts: Cluster) -> None:
    """hvd.spark.write_manifest, then hvdrun --manifest by hand, over ssh."""
    path = standalone.folder / "cluster.json"
    made = driver.good("manifest", path=str(path))
    assert {host["address"]: host["slots"] for host in made["hosts"]} == {
        three_hosts.address(name): 2 for name in three_hosts.names
    }
    assert json.loads(path.read_text()) == made
    build = pathlib.Path(os.environ.get("HVD_BUILD_DIR", s.ROOT / "build"))
    command = [str(build / "launcher/hvdrun"), "--manifest", str(path), "--", "sh", "-c", "echo $HVD_RANK $(hostname)"]
    done = three_hosts.run("alpha", command, env=standalone.variables)
    assert done.returncode == 0, done.stderr
    assert sorted(line.split("] ")[1].split()[0] for line in done.stdout.splitlines()) == list("012345")
    assert {line.split()[-1] for line in done.stdout.splitlines()} == set(three_hosts.names)


@pytest.mark.nightly
def test_the_page_on_spark_literally(standalone: s.Standalone, sessions: list[s.Driver], three_hosts: Cluster) -> None:
    """All its programs, one after the other, and its command, unchanged, on the first of three hosts."""
    while sessions:
        sessions.pop().close()  # the program requests every core
    text = (s.ROOT / "docs/spark.md").read_text()
    programs = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    command = next(line.strip() for line in text.splitlines() if line.startswith("    hvdrun "))
    assert len(programs) == 3 and command.split()[:2] == ["hvdrun", "--manifest"]
    (standalone.folder / "page.py").write_text("".join(programs))
    env = {**standalone.variables, "SPARK_LOCAL_IP": three_hosts.address("alpha")}
    script = f"cd {standalone.folder} && {s.python()} page.py && echo from a terminal && exec {command} --python {s.python()}"
    try:
        done = three_hosts.run("alpha", ["sh", "-c", script], env=env, timeout=250)
    finally:
        for path in ("/var/tmp/hvd-runs", "/var/tmp/hvd-model"):  # all hosts have one /var/tmp
            shutil.rmtree(path, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-3000:]
    notebook, terminal = done.stdout.split("from a terminal\n")
    lines = notebook.splitlines()
    value = lines.index("0.2")
    assert {line.split("] ")[1] for line in lines[:value]} == {"rank 0 of 2", "rank 1 of 2"}
    assert sum(line.partition("] ")[2].startswith("epoch ") for line in lines) == 5, notebook
    assert any("label__output" in line for line in lines), notebook
    assert sorted(line.split("] ")[1] for line in terminal.splitlines()) == [f"rank {rank} of 6" for rank in range(6)], terminal


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_fifty_runs_leave_nothing(driver: s.Driver, three_hosts: Cluster) -> None:
    """No process, file, descriptor or thread more than after the first."""
    driver.good("runner", np=6)
    before = driver.good("open_files")
    assert driver.good("many_runs", np=6, runs=50, limit=800.0) == 300
    after = driver.good("open_files")
    assert all(after[what] <= before[what] + 2 for what in after), (before, after)
    nothing_left(three_hosts)
