"""Tests of scripts/release: the trees and versions that it refuses; in the nightly run, also every artefact."""

from __future__ import annotations

import hashlib
import pathlib
import re
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def release(*arguments: str | pathlib.Path, limit: float = 60) -> subprocess.CompletedProcess[str]:
    """A dry run."""
    argv = [ROOT / "scripts/release", "--dry-run", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=limit, check=False)


def test_the_tree_could_be_released(tmp_path: pathlib.Path) -> None:
    """Every page that names a version names the version of meson.build."""
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


def test_recipes_name_the_wheel(tmp_path: pathlib.Path) -> None:
    """Each recipe has the main wheel's name, not the older one's; Python can read those of Spack and EasyBuild."""
    wheel = tmp_path / "hvdrun-0.0.1-cp39-abi3-manylinux_2_34_x86_64.whl"
    wheel.write_bytes(b"no wheel")
    (tmp_path / "hvdrun-0.0.1-cp39-abi3-manylinux_2_27_x86_64.whl").write_bytes(b"nor this one")
    done = release("recipes", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*-recipes.tar.gz")
    with tarfile.open(archive) as opened:
        texts = {
            name.split("/", 1)[1]: opened.extractfile(name).read().decode()  # type: ignore[union-attr]
            for name in opened.getnames()
        }
    del texts["conda/LICENSE"]
    debian = ["debian/changelog", "debian/control", "debian/copyright", "debian/rules"]
    assert sorted(texts) == ["Containerfile", "conda/recipe.yaml", *debian, "easybuild/hvdrun.eb", "spack/package.py"]
    named = set(texts) - set(debian) | {"debian/rules"}
    for name, text in texts.items():
        assert (wheel.name in text) == (name in named), name
        assert not re.search(r"@[A-Z0-9]+@", text), name
    for name in ("easybuild/hvdrun.eb", "spack/package.py"):
        compile(texts[name], name, "exec")
    for name in ("conda/recipe.yaml", "easybuild/hvdrun.eb", "spack/package.py"):
        assert hashlib.sha256(b"no wheel").hexdigest() in texts[name], name
    assert "    - __glibc >=2.34\n" in texts["conda/recipe.yaml"]


@pytest.mark.nightly
def test_every_artefact(tmp_path: pathlib.Path) -> None:
    """Wheel, sources, bill of materials, Debian package, site and sums; the sums are right. The package has both launchers."""
    out = tmp_path / "release"
    done = release("--out", out, limit=3600)
    assert done.returncode == 0, done.stderr
    names = " ".join(sorted(f.name for f in out.iterdir()))
    assert re.search(r"SHA256SUMS.*-recipes.tar.gz.*-site.tar.gz.*\.whl.*\.cdx\.json.*\.tar\.gz", names), names
    package = next(out.glob("*.deb"), None)
    assert (package is None) == ("no Debian package: " in done.stdout), done.stdout
    if package is not None:
        files = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
        assert {"./usr/bin/hvdrun", "./usr/bin/horovodrun"} <= set(files.split())
    older = re.search(r"manylinux_2_27_\w+\.whl", names)
    assert (older is None) == ("no wheel for glibc 2.27: " in done.stdout), done.stdout
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, check=True, capture_output=True)
