"""The world begins and ends many times; children of fork() leave it alone."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Any

import pytest

from python.harness import environment, has, python
from support.forms import few
from support.hvdrun import mpiruns

HERE = pathlib.Path(__file__).resolve().parent


def run_ranks(mpirun: str, ranks: int, *argv: str, **env: str) -> None:
    """The file's ranks under this mpirun; each reports success."""
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    extra = dict(env)
    library = pathlib.Path(mpirun).resolve().parent.parent / "lib"
    if not str(library).startswith("/usr"):
        extra["LD_LIBRARY_PATH"] = f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        extra["OPAL_PREFIX"] = str(library.parent)
    command = ["timeout", "-k", "5", "105", mpirun, *options, python(), *argv]
    done = subprocess.run(
        command,
        env=environment(**extra),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=115,
    )
    assert done.returncode == 0 and done.stdout.count("#fine") == ranks, done.stdout[-4000:]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("per_node", few(["1", "0"]), ids=["two nodes", "one node"])
@pytest.mark.parametrize("mpirun", few(mpiruns()))
def test_init_and_shutdown_200_times(mpirun: Any, per_node: str) -> None:
    if not has("numpy"):
        pytest.skip(f"{python()} lacks numpy")
    run_ranks(mpirun, 2, str(HERE / "reinit.py"), "200", HVD_RANKS_PER_NODE=per_node)


@pytest.mark.timeout(120)
def test_workers_of_a_data_loader() -> None:
    if not has("torch"):
        pytest.skip(f"{python()} lacks torch")
    mpirun = "/usr/bin/mpirun"
    if not os.access(mpirun, os.X_OK):
        pytest.skip("mpirun is not installed")
    run_ranks(mpirun, 2, str(HERE / "forked.py"))
