"""Clean roots for scripts/check-artefacts: minimal systems that debootstrap makes once, each use in an overlay of its own.

The caller must have a mount namespace and a process namespace of its own. So mounts and processes end with it. A folder is
deleted only below a cache that carries MARK, and only while nothing is mounted in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = ".made-by-check-artefacts"  # in the cache; locked while a run uses the cache
UBUNTU = "http://archive.ubuntu.com/ubuntu"
NEEDED = "python3,python3-venv,ca-certificates"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLIENTS = ("pip_", "http_proxy", "https_proxy", "no_proxy", "ssl_cert_", "requests_ca_bundle")  # variables of package clients
SHORT_SECONDS = 120  # mounts, and commands that only look at files
MAKE_SECONDS = 1200
SYSTEMS = {
    "bullseye": "Debian 11",
    "bookworm": "Debian 12",
    "trixie": "Debian 13",
    "jammy": "Ubuntu 22.04",
}


class CheckError(Exception):
    """A command failed; the text has the end of its output."""


def progress(text: str, limit: float) -> None:
    """Prints a line for a step that takes a while."""
    print(f"{time.strftime('%T')}   {text} (at most {limit:.0f} s)", flush=True)


def said(argv: list[str | pathlib.Path], limit: float = SHORT_SECONDS, env: dict[str, str] | None = None) -> str:
    """The output of a command. Throws CheckError if it fails; after `limit` seconds all its processes are killed."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=env, start_new_session=True
    )
    try:
        output, errors = child.communicate(timeout=limit)
    except BaseException as error:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CheckError(f"{argv[-1]} did not end within {limit:.0f} s") from None
        raise
    if child.returncode != 0:
        end = "\n".join((output + errors).splitlines()[-30:])
        raise CheckError(f"{argv[-1]} ended with {child.returncode}:\n{end}")
    return output


@contextlib.contextmanager
def cache_of_roots(folder: pathlib.Path) -> Iterator[None]:
    """Locks the cache, and makes it if it is missing. Throws CheckError if it is another program's or in use."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / MARK
    if not mark.exists() and any(folder.iterdir()):
        raise CheckError(f"{folder} is not empty, and check-artefacts did not make it: name another --cache")
    if folder.stat().st_uid != os.geteuid():
        raise CheckError(f"{folder} belongs to another user: name another --cache")
    with os.fdopen(os.open(mark, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckError(f"another run uses {folder}: wait for it, or name another --cache") from None
        yield


def delete(folder: pathlib.Path) -> None:
    """Deletes a folder of the cache. Throws CheckError if a mount is left: deleting would go on in /dev and the checkout."""
    mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    if left := [place for place in mounts if place.startswith(f"{folder}/")]:
        raise CheckError(f"cannot unmount {', '.join(left)}")
    shutil.rmtree(folder, ignore_errors=True)


def give_settings(root: pathlib.Path) -> None:
    """Copies the settings of this machine's package clients. update-ca-certificates completes them."""
    for name in ("etc/pip.conf", "etc/resolv.conf", "etc/hosts"):
        if os.path.exists(f"/{name}"):
            shutil.copy(f"/{name}", root / name)
    for place in ("etc/apt/apt.conf.d", "usr/local/share/ca-certificates"):
        (root / place).mkdir(parents=True, exist_ok=True)
    for file in pathlib.Path("/etc/apt/apt.conf.d").iterdir():
        if "Acquire" in file.read_text():
            shutil.copy(file, root / "etc/apt/apt.conf.d")
    for file in pathlib.Path("/usr/local/share/ca-certificates").rglob("*.crt"):
        shutil.copy(file, root / "usr/local/share/ca-certificates")


class CleanRoot:
    """A minimal system, mounted over a kept one. Changes in the root are lost at the end."""

    def __init__(self, name: str, cache: pathlib.Path, artefacts: pathlib.Path) -> None:
        self.name, self.cache = name, cache
        self.base, self.changes = cache / name, cache / f"{name}.changes"
        self.root = self.changes / "root"
        self._shared = {
            "artefacts": artefacts,
            "examples": ROOT / "examples",
            "scripts": ROOT / "scripts",
            "pip": cache / "pip",
        }

    def make(self) -> None:
        """Makes the kept system, if it is not there: debootstrap's variant minbase with Python."""
        if (self.base / "etc/debian_version").exists():
            return
        building = self.cache / f"{self.name}.new"
        delete(building)
        progress(f"debootstrap makes a minimal {SYSTEMS[self.name]}", MAKE_SECONDS)
        ubuntu = ["--no-check-gpg", "--components=main,universe"] if self.name == "jammy" else []  # its keys are not Debian's
        where = [UBUNTU] if self.name == "jammy" else []
        options = ["--variant=minbase", f"--include={NEEDED}", *ubuntu]
        said(["debootstrap", *options, self.name, building, *where], MAKE_SECONDS)
        building.rename(self.base)

    def __enter__(self) -> CleanRoot:
        """Mounts a fresh one."""
        self._remove()
        try:
            self._mount()
        except BaseException:
            self._remove()
            raise
        return self

    def _mount(self) -> None:
        for folder in ("root", "upper", "work"):
            (self.changes / folder).mkdir(parents=True)
        layers = f"lowerdir={self.base},upperdir={self.changes}/upper,workdir={self.changes}/work"
        said(["mount", "-t", "overlay", "-o", layers, "overlay", self.root])
        for place in ("/dev", "/sys"):
            said(["mount", "--rbind", place, f"{self.root}{place}"])
        said(["mount", "-t", "proc", "proc", self.root / "proc"])
        said(["mount", "-t", "tmpfs", "tmpfs", self.root / "dev/shm"])
        for name, shared in self._shared.items():
            shared.mkdir(exist_ok=True)
            (self.root / "opt" / name).mkdir(parents=True)
            said(["mount", "-o", "bind" if name == "pip" else "bind,ro", shared, self.root / "opt" / name])
        give_settings(self.root)
        self.run("update-ca-certificates >/dev/null 2>&1")

    def __exit__(self, *_: object) -> None:
        """Unmounts it and deletes its changes."""
        print(f"{time.strftime('%T')}   deletes the root's changes", flush=True)
        self._remove()

    def _remove(self) -> None:
        """Unmounts it and deletes its changes. Throws CheckError if a mount is left."""
        if self.root.is_mount():
            subprocess.run(["umount", "--recursive", "--lazy", self.root], check=False, timeout=SHORT_SECONDS)
        delete(self.changes)

    def run(self, command: str, what: str = "", limit: float = SHORT_SECONDS) -> tuple[str, float]:
        """Runs a line of shell inside; its output and its seconds. `what` is for a line of progress."""
        if what:
            progress(what, limit)
        kept = {name: value for name, value in os.environ.items() if name.lower().startswith(CLIENTS)}
        env = {**kept, "PATH": PATH, "HOME": "/root", "PIP_CACHE_DIR": "/opt/pip", "DEBIAN_FRONTEND": "noninteractive"}
        begin = time.monotonic()
        output = said(["chroot", self.root, "sh", "-ec", f"cd /root; {command}"], limit, env)
        return output, time.monotonic() - begin
