"""A CPython 3.13 without a GIL, of Debian 13's source; and the extension module for it under ThreadSanitizer."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

from sysroot import BuildError, SysrootError, private_apt, run

TREE = pathlib.Path(__file__).resolve().parents[2]
VERSION = "3.13"
RELEASE = "trixie"  # Debian 13, which never gets another 3.x
CONFIGURE = "./configure --quiet --disable-gil --disable-test-modules"
# A build under ThreadSanitizer, only for tests. The compiler is clang, since ThreadSanitizer of gcc 12 does not support
# CPython's fences. The build has no optimization, and only the modules that tests need: a third of the
# time of a whole build. Tests run the interpreter from its build folder.
SANITIZED = "CC=clang CXX=clang++ {configure} --with-thread-sanitizer && make -s -j2 OPT='-DNDEBUG -fwrapv -O0'"
LEFT_OUT = (
    "*disabled*\n_codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _curses _curses_panel _dbm _gdbm"
    " _sqlite3 _tkinter readline _lzma _bz2 _ssl _decimal _elementtree pyexpat\n"
)
MODULE = TREE / "build/free-threaded-tsan/hvd"


def make_python(sanitized: bool) -> pathlib.Path:
    """Builds the interpreter unless it exists, and returns its path. Takes some minutes."""
    cache = (TREE / ".cache").resolve()
    place = cache / ("free-threaded-tsan" if sanitized else "free-threaded")
    program = place / ("source/python" if sanitized else f"bin/python{VERSION}t")
    if program.exists():
        return program
    if sanitized and shutil.which("clang") is None:
        raise SysrootError("clang is not installed")
    building = cache / f"{place.name}-source"
    shutil.rmtree(building, ignore_errors=True)
    tree = fetched_source(building)
    env = {name: value for name, value in os.environ.items() if not name.endswith("FLAGS") and name[:2] != "PY"}
    if sanitized:
        (tree / "Modules/Setup.local").write_text(LEFT_OUT)
        # Programs under ThreadSanitizer run at addresses that are not random, and the build runs CPython.
        argv = ["setarch", "-R", "sh", "-c", SANITIZED.format(configure=CONFIGURE)]
        run(argv, 3000, {**env, "TSAN_OPTIONS": "exitcode=0 report_bugs=0"}, "CPython does not build", tree, BuildError)
        place.mkdir(exist_ok=True)
        tree.rename(place / "source")
    else:
        command = f"{CONFIGURE} --prefix={place} && make -s -j2 && make -s install"
        run(["sh", "-c", command], 3000, env, "CPython does not build", tree, BuildError)
    shutil.rmtree(building)
    return program


def debian_archive() -> str:
    """Returns the Debian archive that this machine's apt uses. That archive has all releases, and apt checks its signatures.
    Raises SysrootError if apt uses none."""
    form = ["--format", "$(ORIGIN) $(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    for line in run(["apt-get", "indextargets", *form], 60).splitlines():
        origin, release, address = line.split(maxsplit=2)
        if origin == "Debian" and "-" not in release:
            return str(address)
    raise SysrootError("apt knows no archive of Debian here")


def fetched_source(building: pathlib.Path) -> pathlib.Path:
    """Fetches and unpacks the source package, without Debian's patches, by an apt with folders of its own."""
    apt = private_apt(building, f"deb-src {debian_archive()} {RELEASE} main\n")
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
    # Two folders of headers: this CPython is not installed, and its pyconfig.h lies elsewhere than Python.h.
    ask = "from sysconfig import *; print(get_path('include'), get_path('platinclude'), get_config_var('EXT_SUFFIX'))"
    said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True, timeout=60)
    include, generated, suffix = said.stdout.split()
    MODULE.mkdir(parents=True, exist_ok=True)
    module = MODULE / f"_native{suffix}"
    files = [str(file) for file in sorted((TREE / "src/python/ext/native").rglob("*.c"))]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-fsanitize=thread"]
    folders = [f"-I{include}", f"-I{generated}", f"-I{TREE}/include", f"-I{TREE}/src"]
    command = ["clang", *flags, *folders, *files, "-o", str(module), "-lpthread", "-ldl"]
    run(command, 600, where="hvd._native does not compile", error=BuildError)
    return module
