"""The commands of docs/frameworks.md for schedulers, as far as they run here."""

from __future__ import annotations

import json
import os
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

from support import hvdrun
from support.hvdrun import ROOT

PAGE = (ROOT / "docs/frameworks.md").read_text()


def block(title: str) -> str:
    """The first program below a heading."""
    found = re.search(rf"^## {title}\n.*?^```\w+\n(.*?)^```$", PAGE, re.M | re.S)
    assert found, title
    return found[1]


def shell(text: str, folder: pathlib.Path, **variables: str) -> str:
    """The output of these lines, in which hvdrun only shows its plan."""
    (folder / "train.py").write_text("")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "bin").mkdir()
    for name, line in {
        "hvdrun": f'exec "{hvdrun.program()}" --dry-run "$@"',
        "python": f'exec "{sys.executable}" "$@"',
        "flux": 'cat "$RESOURCES"',
    }.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / "bin" / name).chmod(0o755)
    env = {**os.environ, **variables, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-ec", text], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("gpus", ["2", ""])
def test_skypilot(tmp_path: pathlib.Path, gpus: str) -> None:
    """The first node names all nodes; the others do nothing."""
    run = block("SkyPilot").partition("run: |\n")[2]
    nodes = {"SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5", "SKYPILOT_NUM_GPUS_PER_NODE": gpus}
    (tmp_path / "first").mkdir()
    (tmp_path / "other").mkdir()
    said = shell(run, tmp_path / "first", SKYPILOT_NODE_RANK="0", **nodes)
    assert all(f"10.0.0.{number}" in said for number in (4, 5)), said
    assert len(re.findall(r"^ +\d+ +10\.0\.0\.", said, re.M)) == 2 * int(gpus or 1), said
    assert shell(run, tmp_path / "other", SKYPILOT_NODE_RANK="1", **nodes) == ""


@pytest.mark.parametrize(
    ("groups", "nodes", "wanted"),
    [
        ([("0-1", {"core": "0-3"})], ["10.0.0.[2-3]"], {"10.0.0.2": 4, "10.0.0.3": 4}),
        (
            [("1", {"core": "0-7", "gpu": "0,2"}), ("0", {"core": "5"})],
            ["10.0.0.7,10.0.0.8"],
            {"10.0.0.7": 1, "10.0.0.8": 2},
        ),
    ],
)
def test_flux(
    tmp_path: pathlib.Path, groups: list[tuple[str, dict[str, str]]], nodes: list[str], wanted: dict[str, int]
) -> None:
    """Resource sets by RFC 20."""
    lite = [{"rank": rank, "children": children} for rank, children in groups]
    resources = {"version": 1, "execution": {"R_lite": lite, "nodelist": nodes, "starttime": 0, "expiration": 0}}
    (tmp_path / "R").write_text(json.dumps(resources))
    said = shell(block("Flux"), tmp_path, RESOURCES=str(tmp_path / "R"))
    assert (tmp_path / "hosts").read_text() == "".join(f"{host}:{count}\n" for host, count in wanted.items())
    assert all(host in said for host in wanted), said
    hosts_of = runpy.run_path(str(ROOT / "examples/flux_hosts.py"))["hosts_of"]
    assert list(hosts_of("fluke[09-10,3],a-b,c[1]x")) == ["fluke09", "fluke10", "fluke3", "a-b", "c1x"]
