"""Files are not written through other users' links; launch agents run no other user's.  Needs no Spark."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import tempfile

import pytest

from hvd._job.agents import agent_words, private_folder
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


def test_the_agents_folder_is_where_nobody_renames_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that others may write to is no place for it, unless it has the sticky bit."""
    inner = tmp_path / "open/inner"
    inner.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(inner))
    for mode, place in ((0o700, inner), (0o777, pathlib.Path("/tmp")), (0o770, pathlib.Path("/tmp")), (0o1777, inner)):
        inner.parent.chmod(mode)
        made = private_folder("hvd-test-")
        made.rmdir()
        assert made.parent == place, oct(mode)


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
