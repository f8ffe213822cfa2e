"""Timelines of ranks and hvd-timeline do not follow other users' links."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Callable

import pytest

from support.timelines import FAKE_RANK, environment

SOMEBODY = 54321
RunTool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a link of another user's")
def test_another_users_links(tmp_path: pathlib.Path, run_tool: RunTool) -> None:
    """A rank's own file and merge's output, in a folder that is open to all."""
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    mine.write_text("precious\n")
    shared.mkdir()
    shared.chmod(0o1777)
    trap = shared / "t.json"
    env = environment(HOROVOD_TIMELINE=str(tmp_path / "good.json"), HVD_RANK="0", HVD_SIZE="2")
    subprocess.run([str(FAKE_RANK), "2", "2"], env=env, check=True, timeout=30, stdout=subprocess.DEVNULL)
    trap.symlink_to(mine)
    os.lchown(trap, SOMEBODY, SOMEBODY)
    env["HOROVOD_TIMELINE"] = str(trap)
    alone = subprocess.run([str(FAKE_RANK), "2", "2"], env=env, timeout=30, capture_output=True, text=True)
    merged = run_tool("merge", tmp_path / "good.json", "-o", trap)
    for done in (alone, merged):
        assert done.returncode != 0
        assert f"{trap}: leads through a link of another user's (uid {SOMEBODY})" in done.stderr
    assert mine.read_text() == "precious\n"


def test_merge_does_not_empty_what_it_reads(tmp_path: pathlib.Path, run_tool: RunTool) -> None:
    """merge refuses an output that is also an input, under any spelling of its path."""
    env = environment(HOROVOD_TIMELINE=str(tmp_path / "t.json"), HVD_RANK="0", HVD_SIZE="2")
    subprocess.run([str(FAKE_RANK), "2", "2"], env=env, check=True, timeout=30, stdout=subprocess.DEVNULL)
    before = (tmp_path / "t.json").read_text()
    (tmp_path / "link.json").symlink_to("t.json")
    for spelt in (f"{tmp_path}/../{tmp_path.name}/t.json", tmp_path / "link.json"):
        done = run_tool("merge", tmp_path / "t.json", "-o", spelt)
        assert done.returncode == 2
        assert "is also an input" in done.stderr
    assert (tmp_path / "t.json").read_text() == before
