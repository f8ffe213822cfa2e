"""Puts libraries into a wheel, so that it needs no system package: lib/hvdrun, beside the programs' bin.

The programs find the libraries by their run path ($ORIGIN/../lib/hvdrun), and open libzmq by its full path
(src/wire/channel/zmq/zmq_library.cc).
Each library's own run path is changed to that folder. Libraries that every Linux system has (PEP 600) are not bundled. Licences
come from the system's packages, one file a package. Only Debian's kind of system has them in one place. On another system the
folder is not made, and the wheel loads the system's libraries. The system is the one in `root`: this one, or that of another
architecture (sysroot.py).
"""

from __future__ import annotations

import pathlib
import platform
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass

FOLDER = "lib/hvdrun"
LOADED_BY_NAME = ("libzmq.so.5",)
EVERYWHERE = re.compile(r"(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+)\.so(\.\d+)*")


@dataclass(frozen=True)
class BundledLibrary:
    """A library of the system that goes into the wheel, and its package."""

    path: pathlib.Path
    package: str
    version: str
    compiled_in: bool = False  # then it has no file of its own in the wheel


def bundle(tree: pathlib.Path, root: pathlib.Path) -> list[BundledLibrary]:
    """Puts the libraries that an unpacked wheel's programs load into its data folder; returns them."""
    data = next(tree.glob("*.data"))
    if shutil.which("dpkg-query") is None or shutil.which("patchelf") is None:
        print("hvdrun: built without the libraries that it loads: they come along only where dpkg-query and patchelf are")
        return []
    programs = [path for path in (data / "scripts").iterdir() if path.open("rb").read(4) == b"\x7fELF"]
    machine = machine_of(programs[0])
    paths: set[pathlib.Path] = set()
    for program in programs:
        if b"lib/hvdrun" in program.read_bytes():
            paths |= loaded_by(program, root, machine)
    for name in LOADED_BY_NAME:
        path = found(name, root, machine)
        paths |= {path} | loaded_by(path, root, machine)
    libraries = [BundledLibrary(path, *package_of(path, root)) for path in sorted(paths)]
    target = data / "data" / FOLDER
    licences = target / "licences"
    licences.mkdir(parents=True)
    for library in libraries:
        copy = target / library.path.name
        shutil.copyfile(library.path, copy)
        copy.chmod(0o755)
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", str(copy)], check=True, timeout=60)
        copy.write_bytes(asking_for_older(copy.read_bytes()))
    libraries += compiled_in(root)
    for library in libraries:
        shutil.copyfile(root / f"usr/share/doc/{library.package}/copyright", licences / f"{library.package}.txt")
    return libraries


def compiled_in(root: pathlib.Path) -> list[BundledLibrary]:
    """The static libraries of `root`, which its file compiled-in names (old_glibc.py)."""
    listed = root / "usr/share/hvdrun/compiled-in"
    rows = [row.split() for row in listed.read_text().splitlines()] if listed.exists() else []
    return [BundledLibrary(pathlib.Path(re.sub(r"[\d.]+$", "", name)), name, version, True) for name, version in rows]


def machine_of(program: pathlib.Path) -> str:
    """The architecture of a program or library, in the wheels' terms."""
    number = struct.unpack("<H", program.open("rb").read(20)[18:])[0]
    return {62: "x86_64", 183: "aarch64"}.get(number, platform.machine())


def asking_for_older(library: bytes) -> bytes:
    """Replaces the symbol version of condition_variable::wait() from GCC 12 by that of GCC 4.4, and returns the library.

    Every libstdc++ since GCC 4.4 still has the old version of the function. This is the only symbol that Debian 12's libzmq
    needs from a newer libstdc++ than RHEL 9's. In the table of needed versions a version is its name and its hash.
    """
    newer, older = b"GLIBCXX_3.4.30\0", b"GLIBCXX_3.4.11\0"
    if newer not in library:
        return library
    hashes = [struct.pack("<I", elf_hash(name[:-1])) for name in (newer, older)]
    if library.count(newer) != 1 or library.count(hashes[0]) != 1:
        raise SystemExit("a library's wanted versions are not as expected: see asking_for_older() in scripts/lib/bundle.py")
    return library.replace(newer, older).replace(hashes[0], hashes[1])


def elf_hash(name: bytes) -> int:
    """The hash of the System V ABI."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value


def loaded_by(file: pathlib.Path, root: pathlib.Path, machine: str) -> set[pathlib.Path]:
    """The libraries that the loader of `root` loads for it, recursively, without those that every system has."""
    paths: set[pathlib.Path] = set()
    files = [file]
    while files:
        said = subprocess.run(
            ["readelf", "--dynamic", "--wide", str(files.pop())], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", said):
            if not EVERYWHERE.fullmatch(name) and (path := found(name, root, machine)) not in paths:
                paths.add(path)
                files.append(path)
    return paths


def found(name: str, root: pathlib.Path, machine: str) -> pathlib.Path:
    """The path of a library of that name in `root`, as the loader searches."""
    if root == pathlib.Path("/"):
        ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
        said = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, timeout=60, check=True).stdout
        kind = {"aarch64": "AArch64"}.get(machine, "x86-64")
        places = re.findall(rf"^\s*{re.escape(name)} \(libc6,{kind}[^)]*\) => (/\S+)", said, re.M)
    else:
        places = [folder + name for folder in (f"usr/lib/{machine}-linux-gnu/", f"lib/{machine}-linux-gnu/")]
        places = [place for place in places if (root / place).exists()]
    if not places:
        raise SystemExit(f"{name} is not installed: scripts/packages.txt names what building needs")
    path = root / str(places[0])
    return path


def package_of(path: pathlib.Path, root: pathlib.Path) -> tuple[str, str]:
    """The package of a file, and its version."""
    names = {f"/{name.relative_to(root)}" for name in (path, path.resolve())}
    names |= {name.removeprefix("/usr") for name in names} | {"/usr" + name for name in names if not name.startswith("/usr")}
    query = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}"]
    said = subprocess.run([*query, "-S", *sorted(names)], capture_output=True, text=True, timeout=60).stdout
    if not said:
        raise SystemExit(f"{path} is of no package: its licence is not known, so it cannot go into a wheel")
    package = said.split(": ")[0]
    version = subprocess.run(
        [*query, "-W", "-f", "${Version}\n", package], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()[0]
    return package.split(":")[0], version
