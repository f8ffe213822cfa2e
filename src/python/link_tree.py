"""Makes the packages usable from the build folder: link_tree.py SOURCE BUILD NAME=TARGET...

BUILD gets links to the source files of hvd, horovod and sparkdl.  NAME becomes a link to TARGET, which another part of the
build makes.  PYTHONPATH=BUILD is then the installed layout.  The output lists the packages' files, one a line, relative to
SOURCE.  Meson calls this when it configures.
"""

import os
import sys
from pathlib import Path

PACKAGES = ("hvd", "horovod", "sparkdl")


def package_files(source: Path) -> list[str]:
    """The files that a package installs, relative to source.  Hidden files are left out."""
    found = (path for package in PACKAGES for path in (source / package).rglob("*"))
    wanted = (path for path in found if path.suffix in (".py", ".pyi") or path.name in ("py.typed", "verdict.schema.json"))
    return sorted(str(path.relative_to(source)) for path in wanted if not path.name.startswith("."))


def link(path: Path, target: Path) -> None:
    """Makes path a link to target, and replaces what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and os.readlink(path) == str(target):
        return
    if path.is_symlink() or path.exists():
        path.unlink()
    path.symlink_to(target)


source, build, *built = sys.argv[1:]
files = package_files(Path(source))
for file in files:
    link(Path(build, file), Path(source, file))
for pair in built:
    name, _, target = pair.partition("=")
    link(Path(build, name), Path(target))
for path in Path(build).rglob("*.py"):
    if path.is_symlink() and not path.exists():  # the source was moved or removed
        path.unlink()
print("\n".join(files))
