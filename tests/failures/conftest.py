"""Fixtures of the tests whose ranks import hvd."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from support import hvdrun

PACKAGE = pathlib.Path(os.environ.get("HVD_BUILD_DIR", hvdrun.ROOT / "build")).absolute() / "src/python"


@pytest.fixture(scope="session")
def package() -> str:
    """The folder for `import hvd`, "" if it is installed; or a skip."""
    folder = str(PACKAGE) if (PACKAGE / "hvd/_native.abi3.so").exists() else ""
    env = {**os.environ, **({"PYTHONPATH": folder} if folder else {})}
    if subprocess.run([sys.executable, "-c", "import hvd.numpy"], env=env, capture_output=True).returncode:
        pytest.skip("hvd is neither built nor installed")
    return folder


@pytest.fixture(scope="session")
def with_package(package: str) -> dict[str, str]:
    """Variables with which ranks find the package."""
    return {"PYTHONPATH": package} if package else {}
