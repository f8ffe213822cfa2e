"""In an allocation of Slurm one srun starts all daemons.  A stand-in for srun runs its tasks on this machine."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

import pytest

from support import hvdrun

# Runs the script from standard input once for each node, as srun --label does. Appends its arguments to the file `calls`.
SRUN = """#!/bin/bash
echo "$@" >> {folder}/calls
for word; do case $word in --nodelist=*) nodes=${{word#*=}};; esac; done
script=$(mktemp {folder}/script.XXXX); cat > $script
[ -e {folder}/pad ] && pad=" "
number=0
for node in ${{nodes//,/ }}; do
  (SLURMD_NODENAME=$node /bin/sh < $script 2>&1 | sed -u "s/^/$pad$number: /") &
  number=$((number + 1))
done
wait
"""


@pytest.fixture
def slurm(tmp_path: pathlib.Path) -> dict[str, str]:
    """Variables as in an allocation, and programs in its PATH."""
    programs = {"srun": SRUN.format(folder=tmp_path), "munge": "#!/bin/sh\nexec base64", "unmunge": "#!/bin/sh\nexec base64 -d"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return hvdrun.environment(PATH=f"{tmp_path}:{os.environ['PATH']}", SLURM_JOB_ID="7", SLURM_TASKS_PER_NODE="1")


def start(slurm: dict[str, str], nodes: int, *argv: str, limit: int = 60) -> subprocess.CompletedProcess[str]:
    """hvdrun with a rank on each of the nodes n1, n2 …, none of which is this machine."""
    env = {**slurm, "SLURM_JOB_NODELIST": f"n[1-{nodes}]", "SLURM_TASKS_PER_NODE": f"1(x{nodes})"}
    return hvdrun.run("--start-timeout", str(limit), *argv, env=env, timeout=limit + 60)


@pytest.mark.parametrize("nodes", [3, pytest.param(500, marks=pytest.mark.nightly)])
def test_one_step_starts_all_daemons(slurm: dict[str, str], tmp_path: pathlib.Path, nodes: int) -> None:
    (tmp_path / "pad").touch()
    began = time.monotonic()
    done = start(slurm, nodes, "--", "sh", "-c", "echo $HVD_RANK $HVD_HOST", limit=60 if nodes < 10 else 300)
    print(f"{nodes} nodes: {time.monotonic() - began:.2f} s")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("] ")[-1] for _ in range(1))  # the tags come first
    said = {line.split("] ")[1] for line in done.stdout.splitlines()}
    assert said == {f"{rank} n{rank + 1}" for rank in range(nodes)}, done.stderr
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert f"--nodes={nodes} --ntasks={nodes} " in call


def test_the_step_names_the_node_whose_daemon_does_not_start(slurm: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Another node has another hvdrank: its shell says so, in the step's common output."""
    text = SRUN.format(folder=tmp_path).replace(
        "/bin/sh <", "/bin/sh -c 'case $SLURMD_NODENAME in n2) sed s/^hvd_rank=.*/hvd_rank=no/;; *) cat;; esac | /bin/sh' <"
    )
    (tmp_path / "srun").write_text(text)
    done = start(slurm, 3, "true")
    assert done.returncode == 4, done.stderr
    assert "n2" in done.stderr.splitlines()[0], done.stderr
