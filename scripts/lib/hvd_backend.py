"""The build backend: meson-python, and the wheel's tag set to the oldest CPython that it serves.

The one extension module uses the limited API of CPython 3.9, but meson-python names the interpreter that builds.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import mesonpy
from mesonpy import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel  # noqa: F401

OLDEST = "cp39"


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """As PEP 517 says: the name of the wheel that now lies in wheel_directory."""
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    if name.endswith("-any.whl"):
        return str(name)  # nothing native in it
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", OLDEST, "--abi-tag", "abi3"]
    done = subprocess.run([*command, str(pathlib.Path(wheel_directory) / name)], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]
