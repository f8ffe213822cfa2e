"""scripts/setup: pinned packages, and messages if it cannot install."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = sorted(p for p in (ROOT / "scripts/requirements").glob("*.txt") if p.stem != "no-torch")  # a constraint, no list


def steps(script: str, folder: pathlib.Path, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    """Runs shell text after scripts/lib/steps.sh, in an empty folder."""
    return subprocess.run(
        ["sh", "-euc", f". {ROOT}/scripts/lib/steps.sh\n{script}"],
        cwd=folder,
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_package_has_its_version_and_hashes(path: pathlib.Path) -> None:
    packages = re.split(r"\n(?=[a-zA-Z0-9])", path.read_text().strip())
    assert packages
    for package in packages:
        assert re.match(r"[a-zA-Z0-9._-]+(\[[a-z0-9,]+\])?==\S+", package), package
        assert "--hash=sha256:" in package, package


def test_a_changed_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "list.txt").write_text("wheel==0.48.0 --hash=sha256:" + "0" * 64 + "\n")
    (tmp_path / "wheel-0.48.0-py3-none-any.whl").write_bytes(b"something else")
    argv = [
        ".venv/bin/pip",
        "download",
        "--no-index",
        "--no-deps",
        "--find-links",
        str(tmp_path),
        "--dest",
        str(tmp_path / "d"),
    ]
    done = subprocess.run(
        [*argv, "--require-hashes", "-r", str(tmp_path / "list.txt")], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_without_root_the_command_can_be_copied(tmp_path: pathlib.Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")  # a user, and no sudo in PATH
    (tmp_path / "id").chmod(0o755)
    (tmp_path / "apt-get").symlink_to("/bin/false")
    (tmp_path / "apt-cache").write_text('#!/bin/sh\ncase $3 in libnew|g++) echo "$3 | 1" ;; ca-certificates) echo 1 ;; esac\n')
    (tmp_path / "apt-cache").chmod(0o755)
    for tool in ("sh", "date", "tr"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = steps("install_packages g++ 'libold|libnew' 'spin|'", tmp_path, str(tmp_path))
    assert done.returncode == 1
    assert "  apt-get update && apt-get install --no-install-recommends g++ libnew\n" in done.stderr
    assert "no package spin here" in done.stderr


def test_a_step_that_is_stopped_says_that_it_goes_on(tmp_path: pathlib.Path) -> None:
    done = steps("quietly 1 sleep 30", tmp_path)
    assert done.returncode == 1
    assert "run this again: it goes on where it was" in done.stderr
