"""A CPython for the old C library (old_glibc.py), with which tests install and run the wheel. No wheel contains it.

Debian's source of CPython is built with the compiler of that system. zlib, libffi and the libstdc++ that NumPy
needs are Ubuntu 18.04's packages.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import sys

from old_glibc import ARCHIVE, SYSTEM, TRIPLET, fetched, fetched_source
from sysroot import BuildError, run

PLACE: pathlib.Path = SYSTEM.folder / "python"  # belongs at /python in the system
PACKAGES = {
    "zlib1g=1:1.2.11.dfsg-0ubuntu2": "2e6dafb986ee8ebbc4e1c344fab090a41710cab878fc9cd89336cdd1740518c5",
    "zlib1g-dev=1:1.2.11.dfsg-0ubuntu2": "1bd6bfc66d1de113f14a9afdd61d7f4b911c11c570403dd9785aa937b88f9ea9",
    "libffi6=3.2.1-8": "fa26945b0aadfc72ec623c68be9cc59235a7fe42e2388f7015fd131f4fb06dc9",
    "libstdc++6=8-20180414-1ubuntu2": "8668c100a679d68520256f9145ef6f9cf3912aa574605884fe866a4962415422",  # for NumPy
    "libffi-dev=3.2.1-8": "ddf07b70dbef7858e3c0df764d3ee12bef12f1badcd947d4614d6567c7026969",
}
SEARCHED = {  # by setup.py; in place of this system's folders
    "system_lib_dirs": [f"{SYSTEM.root}/lib/{TRIPLET}", f"{SYSTEM.root}/usr/lib/{TRIPLET}"],
    "system_include_dirs": [f"{SYSTEM.root}/usr/include"],
}
# libpython is shared, for programs that hvdrank runs in its own process.
BUILD = (
    "./configure --prefix=/python --enable-shared --without-ensurepip --disable-test-modules && make -s -j2 && make -s install"
)


def make_python() -> pathlib.Path:
    """Builds CPython in the system of old_glibc.make(), unless it exists. Returns its folder. Takes some minutes."""
    made = PLACE / "made-with"
    recipe = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    if made.exists() and made.read_text() == recipe:
        return PLACE
    shutil.rmtree(PLACE, ignore_errors=True)
    (PLACE / "lib").mkdir(parents=True)
    folder = SYSTEM.folder / "packages/python"
    unpacked, target = folder / "unpacked", folder / "target"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, expected in PACKAGES.items():
        (file,) = fetched(name.split("=")[0], ARCHIVE, "download", name)
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise BuildError(f"{file.name} is not the file whose sum scripts/lib/old_python.py names")
        run(["dpkg-deb", "--extract", str(file), str(unpacked)], 60)
    for library in (*unpacked.rglob("libz.so.1"), *unpacked.rglob("libffi.so.6"), *unpacked.rglob("libstdc++.so.6")):
        shutil.copyfile(library, PLACE / "lib" / library.name)
        (PLACE / "lib" / library.name.rpartition(".")[0]).symlink_to(library.name)
    source = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    tree, _ = fetched_source(source)
    keep_search_inside(tree / "setup.py")
    headers = unpacked / "usr/include"
    env = {
        **{name: value for name, value in os.environ.items() if not name.endswith(("FLAGS", "_PATH")) and name[:2] != "PY"},
        "CC": f"{SYSTEM.folder}/tool/bin/cc",
        "CXX": f"{SYSTEM.folder}/tool/bin/c++",
        "CPPFLAGS": f"-I{headers} -I{headers}/{TRIPLET}",
        "LDFLAGS": f"-L{PLACE}/lib -Wl,-rpath,/python/lib",
        "PKG_CONFIG_LIBDIR": "/python/lib/pkgconfig",  # none: nothing of this system
        "DESTDIR": str(target),
    }
    run(["sh", "-c", BUILD], 1800, env, f"{source} does not build", tree, BuildError)
    shutil.copytree(target / "python", PLACE, symlinks=True, dirs_exist_ok=True)
    for module in PLACE.rglob("*_failed.so"):  # it found no libffi where it was built
        module.rename(module.with_name(module.name.replace("_failed", "")))
    shutil.rmtree(tree)
    made.write_text(recipe)
    return PLACE


def keep_search_inside(setup: pathlib.Path) -> None:
    """Changes the setup.py of CPython 3.11, which would otherwise add this system's header folders."""
    text, changes = re.subn(r"(?m)^( +)self\.add_multiarch_paths\(\)$", r"\1pass", setup.read_text())
    for name, folders in SEARCHED.items():
        text, more = re.subn(rf"(?m)^( +{name} =) \['/.*$", rf"\1 {folders}", text, count=1)
        changes += more
    if changes != 3:
        raise BuildError(f"{setup} is not as expected")
    setup.write_text(text)
