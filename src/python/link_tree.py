"""Makes the package usable from the build folder: link_tree.py SOURCE BUILD FILE... -- NAME=TARGET...

BUILD gets links to the source's files next to the compiled module, and links NAME to what other rooms build, so
that PYTHONPATH=BUILD is the installed layout.  Called by meson at configure time.
"""

import os
import sys
from pathlib import Path


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and os.readlink(path) == str(target):
        return
    if path.is_symlink() or path.exists():
        path.unlink()
    path.symlink_to(target)


source, build, *rest = sys.argv[1:]
files, built = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
for file in files:
    link(Path(build, file), Path(source, file))
for pair in built:
    name, _, target = pair.partition("=")
    link(Path(build, name), Path(target))
for path in Path(build).rglob("*.py"):
    if path.is_symlink() and not path.exists():  # its source was moved or removed
        path.unlink()
