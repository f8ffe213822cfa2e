"""Files are not written through other users' links; launch agents run no other user's.  Needs no Spark."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess

import pytest

from hvd._job.agents import agent_words
from hvd.spark._manifest import write_own


def test_a_file_goes_through_our_own_links_only(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_own(str(tmp_path / "link"), "new")
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    if os.geteuid() != 0:
        pytest.skip("needs root, to make another user's link")
    os.lchown(tmp_path / "link", 54321, 54321)
    write_own(str(tmp_path / "link"), "newer")
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "link").read_text() == "newer"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_an_agent_leaves_another_users_socket(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(tmp_path / "agent"))
        os.seteuid(54321)
        try:
            theirs.listen()  # the kernel keeps this user for SO_PEERCRED
        finally:
            os.seteuid(0)
        words = [word.replace("{host}", "h") for word in agent_words(tmp_path)]
        done = subprocess.run([*words, "/bin/sh"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "another user's process" in done.stderr
