"""Interpreters to try, and payloads for them."""

from __future__ import annotations

import glob
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rank_bench import Driver, manifest


def _pythons() -> list[str]:
    """Every CPython ≥ 3.9 of this machine, one a version: Debian's, pyenv's, this one."""
    found = {}
    patterns = ["/usr/bin/python3.[0-9]*", "/usr/local/bin/python3.[0-9]*", "~/.pyenv/versions/3.*/bin/python3.[0-9]*"]
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.expanduser(pattern))):
            name = os.path.basename(path)
            if name[8:].isdigit() and int(name[8:]) >= 9:
                found.setdefault(f"{name}-{'system' if path.startswith('/usr') else 'pyenv'}", path)
    return [found[k] for k in sorted(found)] or [sys.executable]


@pytest.fixture(scope="session", params=_pythons(), ids=lambda p: p.strip("/").replace("/", "-"))
def interpreter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def venv(interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The python of a venv of that interpreter, with one package of its own."""
    folder = tmp_path_factory.mktemp("venv")
    made = subprocess.run([interpreter, "-m", "venv", "--without-pip", str(folder)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"{interpreter} cannot make a venv: {made.stdout[-200:]}")
    site = next(folder.glob("lib/python3.*/site-packages"))
    (site / "only_in_venv.py").write_text("WHERE = 'venv'\n")
    return str(folder / "bin/python")


@pytest.fixture(params=["embedded", "exec"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(tmp_path: Path):
    """Runs manifests to their end."""

    def start(*manifests: dict[str, Any], payload: bytes | None = None, env: dict[str, str] | None = None) -> Driver:
        return Driver(tmp_path / "driver", list(manifests), payload, env).finish()

    return start


@pytest.fixture
def pickled():
    """A manifest for the bytes of a .pkl."""

    def make(data: bytes, **changes: Any) -> dict[str, Any]:
        sha = hashlib.sha256(data).hexdigest()
        whole = {"kind": "pickle", "name": "train.pkl", "bytes": len(data), "sha256": sha, "deliver": True}
        return manifest(**{**whole, **changes})

    return make
