"""Cross-building hvdrun for aarch64: the system of its packages, and meson's cross file."""

from __future__ import annotations

import pathlib
import re
import shlex
import shutil

from sysroot import AARCH64, Sysroot, SysrootError

TREE = pathlib.Path(__file__).resolve().parents[2]
SYSTEM = Sysroot(AARCH64, TREE / ".cache/aarch64")
BUILD = TREE / "build/aarch64"
ROOM = TREE / "dist/aarch64"  # of the wheel
# Packages that a job needs beyond those of the build.
TO_RUN = ("dash", "coreutils", "python3", "python3-numpy", "python3-cloudpickle", "openssh-client")


def packages() -> list[str]:
    """The libraries of scripts/packages.txt for building, and the packages that a job needs."""
    text = "".join((TREE / f"scripts/packages{kind}.txt").read_text() for kind in ("", "-tests"))
    words = re.sub(r"#.*", "", text).split()
    return [*sorted(word.split("|")[0] for word in words if word.endswith("-dev")), *TO_RUN]


def cross_file() -> pathlib.Path:
    """Writes it.  Beside it, writes the scripts start and start-one, which run a program with its own child programs, and
    alone.

    Raises SysrootError if there is no compiler or no qemu.
    """
    machine, root = SYSTEM.architecture.machine, SYSTEM.root
    tool = f"{SYSTEM.architecture.triplet}-"
    if shutil.which(f"{tool}g++") is None:
        raise SysrootError(f"{tool}g++ is not installed (apt-get install g++-{tool.removesuffix('-')})")
    for name, command in (("start", SYSTEM.enter(TREE)), ("start-one", SYSTEM.one_program())):
        script = SYSTEM.folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
    compilers = [f"{name} = [{cached()}'{tool}{program}']" for name, program in (("c", "gcc"), ("cpp", "g++"))]
    arguments = [f"{name}_{kind}args = ['--sysroot={root}']" for name in ("c", "cpp") for kind in ("", "link_")]
    path: pathlib.Path = SYSTEM.folder / "cross.ini"
    path.write_text(
        "\n".join(
            [
                "[binaries]",
                *compilers,
                f"ar = '{tool}ar'",
                f"strip = '{tool}strip'",
                "pkg-config = 'pkg-config'",
                f"exe_wrapper = '{SYSTEM.folder}/start-one'",
                "[properties]",
                f"sys_root = '{root}'",
                f"pkg_config_libdir = ['{root}/usr/lib/{machine}-linux-gnu/pkgconfig', '{root}/usr/share/pkgconfig']",
                "[built-in options]",
                *arguments,
                "[host_machine]",
                f"system = 'linux'\ncpu_family = '{machine}'\ncpu = '{machine}'\nendian = 'little'\n",
            ]
        )
    )
    return path


def cached() -> str:
    """The prefix of a compiler's name, if ccache exists."""
    return "'ccache', " if shutil.which("ccache") else ""
