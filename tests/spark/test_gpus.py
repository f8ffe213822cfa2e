"""GPUs that Spark assigns to tasks: a discovery script of the workers lists them."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from netns.cluster import Cluster
from netns.fixtures import make

from . import session as s

REASON = s.why_not()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(300),
    pytest.mark.nightly,
]
SCRIPT = """#!/bin/sh
case $(hostname) in alpha) found='"0", "1"';; *) found='"10", "4"';; esac
echo "{\\"name\\": \\"gpu\\", \\"addresses\\": [$found]}"
"""
EXECUTORS = ("spark.executor.cores=2", "spark.executor.resource.gpu.amount=2", "spark.task.resource.gpu.amount=1")


@pytest.fixture(scope="module")
def two_hosts_with_gpus() -> Iterator[Cluster]:
    """Separate hosts, because GPUs are a setting of the workers."""
    yield from make(2)


@pytest.fixture
def workers() -> Iterator[tuple[str, ...]]:
    """Settings of the workers."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-spark-gpus-", dir="/var/tmp"))
    script = folder / "discover.sh"
    script.write_text(SCRIPT)
    os.chmod(script, 0o755)
    os.chmod(folder, 0o755)
    yield "spark.worker.resource.gpu.amount=2", f"spark.worker.resource.gpu.discoveryScript={script}"
    shutil.rmtree(folder)


def test_ranks_see_the_gpus_of_their_tasks(two_hosts_with_gpus: Cluster, workers: tuple[str, ...]) -> None:
    """Ranks get the GPUs of their host in the order of the GPUs' numbers, and the manifest lists them. The error for too many
    ranks names the number of GPUs."""
    cluster = s.Standalone(two_hosts_with_gpus, settings=workers)
    try:
        driver = cluster.driver(settings=EXECUTORS)
        try:
            alpha, beta = (two_hosts_with_gpus.address(name) for name in two_hosts_with_gpus.names)
            found = driver.good("gpus_of_ranks", np=4, limit=150.0)
            assert sorted(found) == sorted([[alpha, "0,1"]] * 2 + [[beta, "4,10"]] * 2)
            assert {gpu for _, visible in driver.good("gpus_of_ranks", np=2) for gpu in visible.split(",")} < {*"014", "10"}
            made = driver.good("manifest", path=str(cluster.folder / "cluster.json"))
            assert {host["address"]: host["gpus"] for host in made["hosts"]} == {alpha: ["0", "1"], beta: ["4", "10"]}
            build = pathlib.Path(os.environ.get("HVD_BUILD_DIR", s.ROOT / "build"))
            command = [str(build / "launcher/hvdrun"), "--manifest", str(cluster.folder / "cluster.json"), "--"]
            command += ["sh", "-c", "echo $HVD_HOST $CUDA_VISIBLE_DEVICES"]
            done = two_hosts_with_gpus.run("alpha", command, env=cluster.variables)
            said = sorted(line.split("] ")[1] for line in done.stdout.splitlines())
            assert said == [f"{alpha} 0,1"] * 2 + [f"{beta} 4,10"] * 2, done.stderr
            answer = driver.ask("too_few", np=5, timeout=1.0)
            assert "4 slots on 2 executors (spark.task.cpus=1, spark.task.resource.gpu.amount=1)" in answer["error"], answer
        finally:
            driver.close()
    finally:
        cluster.close()
