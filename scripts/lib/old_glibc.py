"""Building hvdrun for an older C library than this system's: glibc 2.27, of 2018.

The compiler is this system's g++, in a folder without headers and libraries of this system. The C library is Ubuntu 18.04's.
Headers come from this system's packages, and the libraries that hvdrun links from its source packages, with Debian's patches.

Each binary of the wheel contains libstdc++ with hidden symbols, because RHEL 8's libstdc++ is too old. The compiler's
libstdc++.a was built for this system's C library, and calls two functions that glibc 2.27 lacks. SHIM defines both.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import sys

from sysroot import X86_64, BuildError, Sysroot, SysrootError, private_apt, run

TREE = pathlib.Path(__file__).resolve().parents[2]
SYSTEM = Sysroot(X86_64, TREE / ".cache/glibc-2.27")
BUILD = TREE / "build/glibc-2.27"
ROOM = TREE / "dist/glibc-2.27"  # of the wheel
TRIPLET = SYSTEM.architecture.triplet
LIBDIR = f"/usr/lib/{TRIPLET}"
STATIC = "usr/share/hvdrun/compiled-in"  # in the system: one line for each static library, "package version"

# The release pocket of Ubuntu 18.04 never changes. Checksums replace the signature, since Debian does not have Ubuntu's key.
ARCHIVE = "deb [trusted=yes] http://archive.ubuntu.com/ubuntu bionic main\n"
C_LIBRARY = {
    "libc6=2.27-3ubuntu1": "1e1eb86fd646aa68f7144ec692b837b6b352d215880c6a2d0c92c19d36938427",
    "libc6-dev=2.27-3ubuntu1": "e426c70a940a7d0c5c95823a5fd01f26bd8bcb08d109df2f8c96c439da8dc440",
    "libgcc1=1:8-20180414-1ubuntu2": "c5a6df527fdfe0da45ff0538414535a04a6753e93a9f5902689cf1a73265423b",
}
HEADERS = ("linux-libc-dev", "nlohmann-json3-dev", "cppzmq-dev", "libopenmpi-dev", "libopenmpi3", "libpmix-dev")
NEWER_PTHREAD = "COND_CLOCKWAIT|MUTEX_CLOCKLOCK|RWLOCK_CLOCKLOCK"  # functions of glibc 2.30 that libstdc++'s headers call
SHIM = """
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN char __libc_single_threaded = 0; /* libstdc++ then always uses atomic operations */
HIDDEN uint32_t arc4random(void) { /* for std::random_device */
  uint32_t value;
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}
"""

CONFIGURE = f"./configure --quiet --prefix=/usr --libdir={LIBDIR}"
CMAKE = f"cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR={LIBDIR[5:]}"
WITH_MAKE = "make -s -j2 && make -s install"
WITH_CMAKE = "cmake --build build -j2 && cmake --install build --strip"
NEEDED = {"cmake": "cmake", "dpkg-source": "dpkg-dev", "autoreconf": "autoconf", "aclocal": "automake", "libtoolize": "libtool"}
# Source package → the binary package, and the build commands. The builds leave out XML, TLS, udev and PCI, so no further
# library is needed.
LIBRARIES = {
    "libsodium": ("libsodium23", f"autoreconf -fi && {CONFIGURE} --disable-shared --with-pic && {WITH_MAKE}"),
    "zeromq3": (
        "libzmq5",
        f"{CMAKE} -DBUILD_TESTS=OFF -DBUILD_STATIC=OFF -DWITH_PERF_TOOL=OFF -DWITH_DOCS=OFF -DENABLE_WS=OFF -DWITH_TLS=OFF"
        " -DWITH_LIBBSD=OFF -DENABLE_CURVE=ON -DWITH_LIBSODIUM=ON"
        f" -DSODIUM_INCLUDE_DIRS=$ROOT/usr/include -DSODIUM_LIBRARIES=$ROOT{LIBDIR}/libsodium.a && {WITH_CMAKE}",
    ),
    "hwloc": (
        "libhwloc15",
        f"{CONFIGURE} --disable-libxml2 --disable-pci --disable-opencl --disable-cuda --disable-nvml --disable-rsmi"
        f" --disable-levelzero --disable-gl --disable-cairo --disable-libudev && {WITH_MAKE}",
    ),
    "yaml-cpp": (
        "libyaml-cpp0.7",
        f"{CMAKE} -DYAML_CPP_BUILD_TESTS=OFF -DYAML_CPP_BUILD_TOOLS=OFF -DYAML_BUILD_SHARED_LIBS=OFF && {WITH_CMAKE}",
    ),
    "simdjson": (
        "libsimdjson14",
        f"{CMAKE} -DSIMDJSON_DEVELOPER_MODE=OFF -DBUILD_SHARED_LIBS=OFF && {WITH_CMAKE}",
    ),
}


def make() -> None:
    """Makes the system, its compiler and its libraries, unless they exist. Takes some minutes."""
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            raise SysrootError(f"{program} is not installed (apt-get install {package})")
    made = SYSTEM.folder / "made-with"
    folder_and_compiler = f"{SYSTEM.folder} {run(['g++', '--version'], 60)}"  # the folder's path is in its commands
    recipe = hashlib.sha256(pathlib.Path(__file__).read_bytes() + folder_and_compiler.encode()).hexdigest()
    if made.exists() and made.read_text() == recipe:
        return
    shutil.rmtree(SYSTEM.folder, ignore_errors=True)
    SYSTEM.make_database()
    for name, expected in C_LIBRARY.items():
        (file,) = fetched(name.split("=")[0], ARCHIVE, "download", name)
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise BuildError(f"{file.name} is not the file whose sum scripts/lib/old_glibc.py names")
        SYSTEM.unpack(file)
    keep_links_inside(SYSTEM.root)
    python = f"libpython{sys.version_info[0]}.{sys.version_info[1]}-dev"
    for file in fetched("headers", system_sources("deb"), "download", *HEADERS, python):
        SYSTEM.unpack(file)
    move_compiler()
    for source, (package, command) in LIBRARIES.items():
        build_library(source, package, command)
    made.write_text(recipe)


def keep_links_inside(root: pathlib.Path) -> None:
    """Makes absolute links relative: the linker would follow /lib/…/libdl.so.2 into this system, whose libdl is empty."""
    for path in root.rglob("*"):
        if path.is_symlink() and path.readlink().is_absolute():
            target = root / path.readlink().relative_to("/")
            path.unlink()
            path.symlink_to(os.path.relpath(target, path.parent))


def system_sources(kind: str) -> str:
    """Returns this system's package sources as lines of sources.list. kind: deb or deb-src."""
    said = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Identifier: Packages"], 60)
    return "".join(f"{kind} {row}\n" for row in sorted(set(said.splitlines())))


def fetched(name: str, sources: str, *command: str) -> list[pathlib.Path]:
    """Runs apt-get with these sources in a folder of its own; returns the new files."""
    folder = SYSTEM.folder / "packages" / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "new").mkdir(parents=True)
    apt = private_apt(folder, sources)
    where = f"these package sources lack {' '.join(command[1:])}"
    run(["apt-get", "-q", "update"], 300, apt, where)
    run(["apt-get", "-q", *command], 300, apt, where, folder / "new")
    return sorted((folder / "new").iterdir())


def fetched_source(source: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Fetches and unpacks a source package of this system; returns the tree and the file that describes it."""
    sources = system_sources("deb-src")
    try:
        fetched(source, sources, "source", source)
    except SysrootError:  # a mirror of the security archive may lack sources
        rest = "".join(row for row in sources.splitlines(True) if "-security" not in row)
        print(f"glibc-2.27: {source} of the main archive, since that of the security archive cannot be fetched", flush=True)
        fetched(source, rest, "source", source)
    folder = SYSTEM.folder / "packages" / source / "new"
    (tree,) = (path for path in folder.iterdir() if path.is_dir())
    (description,) = folder.glob("*.dsc")
    return tree, description


def move_compiler() -> None:
    """Puts g++ and its files into the folder tool. The bin there gets the commands cc and c++, which compile for the system."""
    version, tool = run(["g++", "-dumpversion"], 60).strip(), SYSTEM.folder / "tool"
    own = pathlib.Path(run(["g++", "-print-libgcc-file-name"], 60).strip()).parent
    libraries = tool / f"lib/gcc/{TRIPLET}/{version}"
    libraries.mkdir(parents=True)
    for path in own.iterdir():
        if not path.name.startswith("libstdc++.") and path.name != "include-fixed":
            (libraries / path.name).symlink_to(path)
    shutil.copyfile(own / "libstdc++.a", libraries / "libstdc++.a")
    for folder in (f"include/c++/{version}", f"include/{TRIPLET}/c++/{version}"):
        shutil.copytree(f"/usr/{folder}", tool / folder)
    configuration = tool / f"include/{TRIPLET}/c++/{version}/bits/c++config.h"
    text, changes = re.subn(rf"(?m)^#define _GLIBCXX_USE_PTHREAD_({NEWER_PTHREAD}) 1$", "", configuration.read_text())
    if changes != 3:
        raise BuildError(f"{configuration} is not as expected")
    configuration.write_text(text)
    (tool / "bin").mkdir()
    ccache = "ccache " if shutil.which("ccache") else ""
    for program, command, links in (("gcc", "cc", ""), ("g++", "c++", " -Wl,--exclude-libs,libstdc++.a")):
        shutil.copy(shutil.which(f"{TRIPLET}-{program}-{version}") or f"/usr/bin/{program}", tool / "bin" / program)
        script = tool / "bin" / command
        script.write_text(
            "#!/bin/sh\nunset CPATH LIBRARY_PATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH\n"
            f'exec {ccache}{tool}/bin/{program} --sysroot={SYSTEM.root}{links} "$@"\n'
        )
        script.chmod(0o755)
    source, shim = tool / "shim.c", tool / "shim.o"
    source.write_text(SHIM)
    run([str(tool / "bin/cc"), "-O2", "-fPIC", "-D_GNU_SOURCE", "-c", str(source), "-o", str(shim)], 60, error=BuildError)
    run(["ar", "r", str(libraries / "libstdc++.a"), str(shim)], 60)


def build_library(source: str, package: str, command: str) -> None:
    """Builds a library of a source package into the system, with the row and the licence of its binary package."""
    tree, description = fetched_source(source)
    version = re.findall(r"(?m)^Version: (\S+)", description.read_text())[0]
    before = set(SYSTEM.root.rglob("*"))
    env = {
        **{name: value for name, value in os.environ.items() if not name.endswith(("FLAGS", "_PATH"))},
        "CC": f"{SYSTEM.folder}/tool/bin/cc",
        "CXX": f"{SYSTEM.folder}/tool/bin/c++",
        "CFLAGS": "-O2 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2",
        "CXXFLAGS": "-O2 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2",
        "LDFLAGS": "-Wl,-z,relro,-z,now",
        "ROOT": str(SYSTEM.root),
        "DESTDIR": str(SYSTEM.root),
        "PKG_CONFIG_LIBDIR": f"{SYSTEM.root}{LIBDIR}/pkgconfig",
    }
    run(["sh", "-c", command], 1200, env, f"{source} does not build", tree, BuildError)
    for leftover in SYSTEM.root.rglob("*.la"):
        leftover.unlink()
    files = sorted(f"/{path.relative_to(SYSTEM.root)}" for path in set(SYSTEM.root.rglob("*")) - before if not path.is_dir())
    fields = {
        "Package": package,
        "Version": version,
        "Architecture": SYSTEM.architecture.debian,
        "Maintainer": "hvdrun",
        "Description": f"built from {source}",
    }
    SYSTEM.add_row(package, files, "\n".join(f"{name}: {value}" for name, value in fields.items()))
    notice = SYSTEM.root / f"usr/share/doc/{package}/copyright"
    notice.parent.mkdir(parents=True)
    shutil.copyfile(tree / "debian/copyright", notice)
    if not any(".so." in file for file in files):
        (SYSTEM.root / STATIC).parent.mkdir(exist_ok=True)
        with (SYSTEM.root / STATIC).open("a") as listed:
            listed.write(f"{package} {version}\n")


def cross_file() -> pathlib.Path:
    """Writes meson's cross file. Programs for the old system run on this machine, so meson needs no emulator."""
    machine = SYSTEM.architecture.machine
    path: pathlib.Path = SYSTEM.folder / "cross.ini"
    path.write_text(
        f"""[binaries]
c = '{SYSTEM.folder}/tool/bin/cc'
cpp = '{SYSTEM.folder}/tool/bin/c++'
ar = 'ar'
strip = 'strip'
pkg-config = 'pkg-config'
[properties]
needs_exe_wrapper = false
sys_root = '{SYSTEM.root}'
pkg_config_libdir = ['{SYSTEM.root}{LIBDIR}/pkgconfig', '{SYSTEM.root}/usr/share/pkgconfig']
[built-in options]
cpp_link_args = ['-Wl,--allow-shlib-undefined']
[host_machine]
system = 'linux'
cpu_family = '{machine}'
cpu = '{machine}'
endian = 'little'
"""
    )
    return path
