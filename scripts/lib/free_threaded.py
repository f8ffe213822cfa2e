"""A CPython 3.13 without a GIL, of Debian 13's source; and the extension module for it under ThreadSanitizer."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

from sysroot import SysrootError, run

TREE = pathlib.Path(__file__).resolve().parents[2]
VERSION = "3.13"
# Debian 13 never gets another 3.x. The archive's signature is checked, since Debian 12 has its key.
SOURCES = "deb-src http://deb.debian.org/debian trixie main\n"
CONFIGURE = "./configure --quiet --disable-gil --disable-test-modules --prefix={place}"
SANITIZED = "CC=clang CXX=clang++ {configure} --with-thread-sanitizer"  # a gcc of this age does not follow CPython's fences
LIGHTLY = "OPT='-DNDEBUG -g1 -fwrapv -O1'"  # half of the compiler's time
MODULE = TREE / "build/free-threaded-tsan/hvd"


def make_python(sanitized: bool) -> pathlib.Path:
    """Makes it, unless it is there; returns the program. Takes some minutes."""
    place = (TREE / ".cache").resolve() / ("free-threaded-tsan" if sanitized else "free-threaded")
    program = place / f"bin/python{VERSION}t"
    if program.exists():
        return program
    building = place.with_name(f"{place.name}-source")
    shutil.rmtree(building, ignore_errors=True)
    tree = fetched_source(building)
    configure = CONFIGURE.format(place=place)
    if sanitized:
        if shutil.which("clang") is None:
            raise SysrootError("clang is not installed")
        configure = SANITIZED.format(configure=configure)
    # Programs under ThreadSanitizer run at addresses that are not random, and the build runs CPython.
    still = ["setarch", "-R"] if sanitized else []
    env = {name: value for name, value in os.environ.items() if not name.endswith("FLAGS") and name[:2] != "PY"}
    env["TSAN_OPTIONS"] = "exitcode=0 report_bugs=0"
    make = f"make -s -j2 {LIGHTLY if sanitized else ''}"
    run([*still, "sh", "-c", f"{configure} && {make} && {make} install"], 3000, env, "CPython does not build", tree)
    if sanitized:
        rules = tree / "Tools/tsan/suppressions_free_threading.txt"
        shutil.copyfile(rules, place / "suppressions.txt")
    shutil.rmtree(building)
    return program


def fetched_source(building: pathlib.Path) -> pathlib.Path:
    """Fetches and unpacks the source package, without Debian's patches, by an apt with folders of its own."""
    (building / "lists/partial").mkdir(parents=True)
    (building / "sources.list").write_text(SOURCES)
    (building / "status").touch()
    (building / "apt.conf").write_text(
        f'Dir::State::lists "{building}/lists";\nDir::State::status "{building}/status";\nDir::Cache "{building}";\n'
        f'Dir::Etc::sourcelist "{building}/sources.list";\nDir::Etc::sourceparts "-";\n'
        'APT::Sandbox::User "root";\nAcquire::Retries "3";\n'
    )
    apt = {**os.environ, "APT_CONFIG": str(building / "apt.conf")}
    name = f"python{VERSION}"
    run(["apt-get", "-q", "update"], 300, apt, "Debian 13's sources cannot be reached")
    run(
        ["apt-get", "-q", "source", "--download-only", name],
        300,
        apt,
        f"Debian 13's source of {name} cannot be fetched",
        building,
    )
    (archive,) = building.glob("*.orig.tar.xz")
    run(["tar", "-xf", str(archive), "-C", str(building)], 300)
    (tree,) = building.glob("Python-*")
    return tree


def make_module(python: pathlib.Path) -> pathlib.Path:
    """Compiles hvd._native for this CPython under ThreadSanitizer; libhvd is the build's own, named by HVD_LIBRARY."""
    ask = "import sysconfig as s; print(s.get_path('include')); print(s.get_config_var('EXT_SUFFIX'))"
    said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True, timeout=60)
    include, suffix = said.stdout.split()
    MODULE.mkdir(parents=True, exist_ok=True)
    module = MODULE / f"_native{suffix}"
    files = [str(file) for file in sorted((TREE / "src/python/ext/native").glob("*.c"))]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-fsanitize=thread"]
    folders = [f"-I{include}", f"-I{TREE}/include", f"-I{TREE}/src"]
    run(["clang", *flags, *folders, *files, "-o", str(module), "-lpthread", "-ldl"], 600, None, "hvd._native does not compile")
    return module
