"""A small system of another architecture in a folder, from Debian's packages: for compiling, and for running programs.

No privileges are needed: apt uses folders of its own, and packages are unpacked without running their scripts. Programs run
under qemu, in one of two ways. A single program sees this machine's files, and cannot start other programs of its architecture.
In namespaces of their own, all programs run, since the kernel starts qemu for each (binfmt_misc in a user namespace: Linux
6.7).
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from dataclasses import dataclass

ENTER = """set -eu
root=$1 tree=$2
shift 2
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s "$HVD_BINFMT" >/proc/sys/fs/binfmt_misc/register
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root$tree"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$tree" "$root$tree"
status=0
chroot "$root" /usr/bin/env -C "$PWD" "$@" || status=$?  # not exec: what kills itself must not be process 1, which cannot
exit $status
"""


@dataclass(frozen=True)
class Architecture:
    """Debian's name, the name in compilers and wheels, and the magic and mask of its programs for binfmt_misc."""

    debian: str
    machine: str
    magic: str
    mask: str

    @property
    def triplet(self) -> str:
        return f"{self.machine}-linux-gnu"


AARCH64 = Architecture(
    "arm64",
    "aarch64",
    r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff",
)
X86_64 = Architecture("amd64", "x86_64", "", "")  # for this machine; needs no qemu


NOT_HERE = 3  # the status of a script that lacks something on this machine


class SysrootError(Exception):
    """The system cannot be made or entered; the message gives the reason."""

    status = NOT_HERE  # the status of the script that it ends


class BuildError(SysrootError):
    """Everything was there, but the result is wrong: sources do not build, or a file has other content than expected."""

    status = 1


@dataclass(frozen=True)
class Sysroot:
    """The system in `folder`/root."""

    architecture: Architecture
    folder: pathlib.Path

    @property
    def root(self) -> pathlib.Path:
        return self.folder / "root"

    def make(self, packages: list[str]) -> None:
        """Installs these packages and their dependencies, unless they are there already."""
        wanted = " ".join(packages)
        made_with = self.folder / "made-with"
        if made_with.exists() and made_with.read_text() == wanted:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("lists/partial", "archives/partial"):
            (self.folder / name).mkdir(parents=True)
        database = self.make_database()
        configuration = self.folder / "apt.conf"
        configuration.write_text(
            f'Dir::State::lists "{self.folder}/lists";\nDir::State::status "{database}";\n'
            f'Dir::Cache "{self.folder}";\nDir::Cache::archives "{self.folder}/archives";\n'
            f'APT::Architecture "{self.architecture.debian}";\nAPT::Architectures {{"{self.architecture.debian}";}};\n'
            'APT::Sandbox::User "root";\nAPT::Install-Recommends "false";\nAcquire::Retries "3";\n'
        )
        apt = {**os.environ, "APT_CONFIG": str(configuration), "DEBIAN_FRONTEND": "noninteractive"}
        where = f"this system's package sources have nothing for {self.architecture.debian}"
        run(["apt-get", "-q", "update"], 300, apt, where)
        run(["apt-get", "-q", "-y", "--download-only", "install", *packages], 900, apt, where)
        for package in sorted((self.folder / "archives").glob("*.deb")):
            self.unpack(package)
        shutil.rmtree(self.folder / "archives")
        made_with.write_text(wanted)

    def make_database(self) -> pathlib.Path:
        """Makes dpkg's database, without packages; returns the path of its file of packages."""
        database: pathlib.Path = self.root / "var/lib/dpkg"
        (database / "info").mkdir(parents=True)
        (database / "status").touch()
        (database / "info/format").write_text("1\n")  # lists are named by architecture, since several may be there
        return database / "status"

    def unpack(self, package: pathlib.Path) -> None:
        """Unpacks its files, and adds its rows to the database that dpkg-query reads."""
        run(["dpkg-deb", "--extract", str(package), str(self.root)], 300)
        fields = run(["dpkg-deb", "--field", str(package)], 60)
        names = dict(line.split(": ", 1) for line in fields.splitlines() if line[:1].isalpha() and ": " in line)
        files = [line.split(maxsplit=5)[5] for line in run(["dpkg-deb", "--contents", str(package)], 60).splitlines()]
        listed = [name.split(" -> ")[0].removeprefix(".").rstrip("/") or "/." for name in files]
        name = names["Package"] + (f":{names['Architecture']}" if names.get("Multi-Arch") == "same" else "")
        self.add_row(name, listed, fields.rstrip("\n"))

    def add_row(self, name: str, files: list[str], fields: str) -> None:
        """Adds a package to the database: the name of its list, its files as absolute paths, and its fields."""
        database = self.root / "var/lib/dpkg"
        (database / "info" / f"{name}.list").write_text("\n".join(files) + "\n")
        with (database / "status").open("a") as status:
            status.write(fields + "\nStatus: install ok installed\n\n")

    def one_program(self) -> list[str]:
        """The command prefix that runs a program of this system. Raises SysrootError if there is no qemu."""
        folders = [self.root / folder / self.architecture.triplet for folder in ("usr/lib", "lib")]
        loader = self.root / f"lib/ld-linux-{self.architecture.machine}.so.1"
        return [self.emulator(), str(loader), "--library-path", ":".join(map(str, folders))]

    def emulator(self) -> str:
        """qemu, statically linked if both exist: it is opened before the root changes, and finds no library after that."""
        name = f"qemu-{self.architecture.machine}"
        path = shutil.which(f"{name}-static") or shutil.which(name)
        if path is None:
            raise SysrootError(f"{name}-static is not installed (apt-get install qemu-user-static)")
        return path

    def enter(self, tree: pathlib.Path, *command: str) -> list[str]:
        """The command that runs a command in it. `tree` is its path outside, and the caller's working folder is below it.

        Raises SysrootError if there is no qemu. The command fails without user namespaces, or without binfmt_misc in them.
        """
        register = f":hvdrun:M::{self.architecture.magic}:{self.architecture.mask}:{self.emulator()}:F"
        namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = ["sh", "-c", ENTER, "enter", str(self.root), str(tree)]
        return ["env", f"HVD_BINFMT={register}", *namespaces, *inside, *command]


def private_apt(folder: pathlib.Path, sources: str) -> dict[str, str]:
    """An environment in which apt-get uses these lines of sources.list, and keeps its files in `folder`."""
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "sources.list").write_text(sources)
    (folder / "status").touch()
    (folder / "apt.conf").write_text(
        f'Dir::State::lists "{folder}/lists";\nDir::State::status "{folder}/status";\nDir::Cache "{folder}";\n'
        f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "-";\n'
        'APT::Sandbox::User "root";\nAcquire::Retries "3";\n'
    )
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}


def run(
    argv: list[str],
    limit: float,
    env: dict[str, str] | None = None,
    where: str = "",
    folder: pathlib.Path | None = None,
    error: type[SysrootError] = SysrootError,
) -> str:
    """The output of a program, which runs in `folder`. Raises `error` if it fails, and SysrootError if it is not installed."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=limit, env=env, cwd=folder, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise SysrootError(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise error(f"{argv[0]} took more than {limit:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise error(f"{where or ' '.join(argv[:3])}: {' '.join(said)}")
    return done.stdout
