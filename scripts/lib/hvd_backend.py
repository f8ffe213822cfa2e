"""The build backend: meson-python, then two changes to its wheel.

The tag names the oldest CPython that the wheel serves: the one extension module uses the limited API of CPython 3.9, but
meson-python names the interpreter that builds. And the bill of materials (sbom.py) goes in.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import mesonpy
from mesonpy import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel  # noqa: F401
from sbom import bill

OLDEST = "cp39"


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """As PEP 517 says: the name of the wheel that now lies in wheel_directory."""
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    add_bill(pathlib.Path(wheel_directory) / name)
    if name.endswith("-any.whl"):
        return str(name)  # nothing native in it
    return wheel("tags", "--remove", "--python-tag", OLDEST, "--abi-tag", "abi3", str(pathlib.Path(wheel_directory) / name))


def add_bill(path: pathlib.Path) -> None:
    """Puts the bill of materials into the wheel, which is written anew with its list of files."""
    with tempfile.TemporaryDirectory() as folder:
        wheel("unpack", "--dest", folder, str(path))
        (tree,) = pathlib.Path(folder).iterdir()
        (info,) = tree.glob("*.dist-info")
        (info / "sboms").mkdir()
        (info / "sboms/hvdrun.cdx.json").write_text(bill(path.name.split("-")[1]))
        wheel("pack", "--dest-dir", str(path.parent), str(tree))


def wheel(*arguments: str) -> str:
    """Runs the tool of that name; the last word that it says."""
    done = subprocess.run([sys.executable, "-m", "wheel", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]
