"""The map of a job over several hosts, each of which describes itself."""

from __future__ import annotations

import json
import os
import re
import time

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun


def show_map(hosts: Cluster, *options: str) -> tuple[int, str, str]:
    done = hosts.run("alpha", [hvdrun.program(), "--show-map", *options], env=jobs.environment(), timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_each_host_says_what_it_is(three_hosts: Cluster) -> None:
    """Text and JSON; the rank runs where the map says."""
    where = ("-H", "alpha:1,beta:2,gamma:1")
    code, text, err = show_map(three_hosts, *where)
    assert code == 0, err
    cores = len(os.sched_getaffinity(0))
    for host in three_hosts.names:
        assert re.search(rf"^{host}: \d+ NUMA nodes?, .* {cores} thread", text, re.M), text
    document = json.loads(show_map(three_hosts, *where, "--json")[1])
    assert [host["known"] for host in document["hosts"]] == [True] * 3
    planned = {rank["rank"]: rank["cpus"] for host in document["hosts"] for rank in host["ranks"]}
    argv = [hvdrun.program(), *where, "--", "sh", "-c", "echo $HVD_RANK $(taskset -cp $$ | sed 's/.*: //')"]
    done = three_hosts.run("alpha", argv, env=jobs.environment(), timeout=60)
    bound = dict(line.split("] ")[1].split() for line in done.stdout.splitlines())
    allowed = sorted(os.sched_getaffinity(0))  # if there are more ranks than cores, a rank may use all
    assert {int(rank): spread(cpus) for rank, cpus in bound.items()} == {r: cpus or allowed for r, cpus in planned.items()}


def spread(cpus: str) -> list[int]:
    """The numbers in "0-2,5"."""
    ends = [[int(number) for number in part.split("-")] for part in cpus.split(",")]
    return [cpu for part in ends for cpu in range(part[0], part[-1] + 1)]


def test_a_host_where_nothing_runs_says_so(three_hosts: Cluster) -> None:
    assert three_hosts.run("gamma", [hvdrun.program(), "ps"]).stdout == "no job of yours runs here\n"
    assert three_hosts.run("gamma", [hvdrun.program(), "stacks"]).stderr.startswith("hvdrun: no job of yours runs here\n")


def test_a_host_that_does_not_answer_is_named(three_hosts: Cluster) -> None:
    begin = time.monotonic()
    code, out, err = show_map(three_hosts, "-H", "alpha:1,gamma:1,10.77.0.9:1")
    assert (code, out) == (4, "")
    assert err.startswith("hvdrun: 10.77.0.9 does not answer\n") or "no route to 10.77.0.9" in err, err
    assert time.monotonic() - begin < hvdrun.within(20)
