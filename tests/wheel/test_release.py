"""scripts/release: what it refuses, and in the nightly form every artefact."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def release(*arguments: str | pathlib.Path, limit: float = 60) -> subprocess.CompletedProcess[str]:
    """A dry run."""
    argv = [ROOT / "scripts/release", "--dry-run", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=limit, check=False)


def test_the_tree_could_be_released(tmp_path: pathlib.Path) -> None:
    """All pages name the version of meson.build."""
    done = release("check", "--out", tmp_path)
    assert done.returncode == 0, done.stderr


def test_what_is_there_stays(tmp_path: pathlib.Path) -> None:
    """A folder with files is not used, and a step without its input names the step before it."""
    (tmp_path / "mine").write_text("mine")
    refused = release("--out", tmp_path)
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)
    assert (tmp_path / "mine").read_text() == "mine"
    missing = release("bom", "--out", tmp_path)
    assert missing.returncode == 1
    assert "run the step that makes it first" in missing.stderr


@pytest.mark.nightly
def test_every_artefact(tmp_path: pathlib.Path) -> None:
    """Wheel, sources, bill of materials, Debian package, site and sums; the sums are right."""
    out = tmp_path / "release"
    done = release("--out", out, limit=3600)
    assert done.returncode == 0, done.stderr
    names = " ".join(sorted(f.name for f in out.iterdir()))
    assert re.search(r"SHA256SUMS.*-site.tar.gz.*\.whl.*\.cdx\.json.*\.tar\.gz.*\.deb", names), names
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, check=True, capture_output=True)
