"""The build backend: meson-python, and three changes to its wheel.

The tag names the oldest CPython and the oldest C library that the wheel serves. The one extension module uses the limited API
of CPython 3.9. meson-python would name the interpreter that builds. An interpreter without a GIL gets a wheel of its own. The
libraries that the programs load are added (bundle.py), and so is the bill of materials (sbom.py).

One additional setting: sysroot, the folder of another system, for which the wheel is built (wheel-aarch64,
wheel-glibc-2.27).
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

import mesonpy
from bundle import bundle, machine_of
from mesonpy import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel  # noqa: F401
from sbom import bill

OLDEST = "cp39"


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """PEP 517: returns the name of the new wheel in wheel_directory."""
    settings = dict(config_settings or {})
    root = pathlib.Path(settings.pop("sysroot", "/")).resolve()
    name = mesonpy.build_wheel(wheel_directory, settings, metadata_directory)
    path = pathlib.Path(wheel_directory) / name
    system = complete(path, root)
    python, abi = interpreters()
    return wheel("tags", "--remove", "--python-tag", python, "--abi-tag", abi, "--platform-tag", system, str(path))


def interpreters() -> tuple[str, str]:
    """Returns the wheel's tags (python, abi): every CPython from OLDEST on, or only this interpreter if it has no GIL."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return OLDEST, "abi3"
    version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return version, f"{version}t"


def complete(path: pathlib.Path, root: pathlib.Path) -> str:
    """Puts libraries of the system in `root` and the bill of materials into the wheel. Updates the wheel's list of files.

    Returns the tag of its systems: manylinux_2_34_x86_64 if it needs glibc 2.34.
    """
    with tempfile.TemporaryDirectory() as folder:
        wheel("unpack", "--dest", folder, str(path))
        (tree,) = pathlib.Path(folder).iterdir()
        libraries = bundle(tree, root)
        (info,) = tree.glob("*.dist-info")
        (info / "sboms").mkdir()
        (info / "sboms/hvdrun.cdx.json").write_text(bill(path.name.split("-")[1], libraries))
        wheel("pack", "--dest-dir", str(path.parent), str(tree))
        return f"manylinux_2_{glibc_wanted(tree)}_{machine_of(next(tree.rglob('libhvd.so')))}"


def glibc_wanted(tree: pathlib.Path) -> int:
    """The minor number of the newest glibc 2 that a program or library in the tree needs."""
    wanted = {17}
    for file in tree.rglob("*"):
        if file.is_file() and file.open("rb").read(4) == b"\x7fELF":
            wanted |= {int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)\0", file.read_bytes())}
    return max(wanted)


def wheel(*arguments: str) -> str:
    """Runs a tool of the package wheel; returns the last word of its output."""
    done = subprocess.run([sys.executable, "-m", "wheel", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]
