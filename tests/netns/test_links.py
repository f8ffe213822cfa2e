"""An allreduce over three hosts: its results, and the bytes on each host's link."""

from __future__ import annotations

import os
import pathlib
import re
import shutil

import pytest

from netns.cluster import Cluster

BUILD = pathlib.Path(os.environ.get("HVD_BUILD_DIR", "build")).resolve()
MPIRUN = shutil.which("mpirun", path="/usr/bin")
ELEMENTS = 2 << 20  # 8 MiB of float32
ROUNDS = 2
PROTOCOL = 1.12  # TCP's headers and acknowledgements, and the negotiation


@pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")
@pytest.mark.parametrize("slots", [(2, 2, 2), (3, 2, 1)], ids=["equal", "unequal"])
def test_each_byte_crosses_a_link_once_each_way(three_hosts: Cluster, slots: tuple[int, int, int]) -> None:
    """A host sends the parts that others add up, and the sums that it has made to each of them: (n - 1) / n of the tensor
    twice.
    """
    program = BUILD / "tests/runtime/hvd_links"
    hosts = ",".join(f"{name}:{count}" for name, count in zip(three_hosts.names, slots, strict=True))
    done = three_hosts.run(
        "alpha",
        [
            str(MPIRUN),
            *("--allow-run-as-root", "--bind-to", "none", "-np", str(sum(slots)), "-H", hosts),
            *("--mca", "btl", "self,vader,tcp", "--mca", "mpi_yield_when_idle", "1"),
            *(str(program), str(ELEMENTS), str(ROUNDS)),
        ],
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"host (\d) sent (\d+) received (\d+) of (\d+)", done.stdout)
    assert [line[0] for line in lines] == ["0", "1", "2"], done.stdout
    for _, sent, received, tensor in lines:
        least = 2 * int(tensor) * 2 // 3
        assert least <= int(sent) <= least * PROTOCOL, done.stdout
        assert least <= int(received) <= least * PROTOCOL, done.stdout
