"""Files for the user are not written through other users' links.  Needs no Spark."""

from __future__ import annotations

import os
import pathlib

import pytest

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
