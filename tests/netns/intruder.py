"""Another user of a host: intruder.py UID MARK, started as root, which it drops for UID.  For a cluster's hosts only.

First it takes names that a job might use, for folders open to all and links into its own folder, and prints "ready". Then,
until its stdin closes, it searches repeatedly for objects of others: files and folders of /tmp, /dev/shm and /run to read,
write, replace and remove; processes to inspect; sockets to connect to; TCP and UDP ports to send to.  At the end it prints
its results {"rounds", "read", "written", "listed", "spoke", "answered", "planted", "tries", "knocks"}: "planted" lists
entries of others under its names, "knocks" counts the tried ports.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import socket
import stat
import sys

import open_ports  # beside this file

SSH_PORT = 22
NAMES = {"alpha", "beta", "gamma", "delta"}
PLACES = ("/tmp", "/dev/shm", "/run")
TRAPS = ("ompi.{host}.0", "prte.{host}.0", "openmpi-sessions-0@{host}_0", "hvdrun", "hvdrun-0", "hvd", "control.sock")
LINKS = ("vader_segment.{host}.0", "sm_segment.{host}.0", "hvd-0", "hvd_0", "payload", "job.pkl")


class Intruder:
    """Counts its attempts and remembers its successes."""

    def __init__(self, mark: str) -> None:
        self.mark = mark.encode()
        self.lair = pathlib.Path("/tmp/lair")
        self.could: dict[str, set[str]] = {word: set() for word in ("read", "written", "listed", "spoke", "answered")}
        self.tries = self.rounds = self.knocks = 0
        self.traps: list[pathlib.Path] = []
        self.known = {path for place in PLACES for path in everything(pathlib.Path(place))}

    def plant(self) -> None:
        """Makes folders and links under guessable names."""
        host = os.uname().nodename
        self.lair.mkdir(mode=0o777)
        self.lair.chmod(0o777)
        for place in ("/tmp", "/dev/shm"):
            for name in TRAPS:
                trap = pathlib.Path(place) / name.format(host=host)
                trap.mkdir()
                trap.chmod(0o777)
                self.traps.append(trap)
            for name in LINKS:
                (pathlib.Path(place) / name.format(host=host)).symlink_to(self.lair / name.format(host=host))
        self.traps.append(self.lair)
        self.count()

    def count(self) -> None:
        """Writes the count for the job, which waits for some rounds; replaces the file atomically."""
        (self.lair / "rounds.new").write_text(str(self.rounds))
        (self.lair / "rounds.new").rename(self.lair / "rounds")

    def round(self) -> None:
        self.rounds += 1
        for place in PLACES:
            for path in everything(pathlib.Path(place)):
                self.touch(path)
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                self.look_into(f"/proc/{entry}")
        for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
            words = line.split()
            if len(words) > 7:
                self.speak_to(words[7])
        for kind, address, port, owner in open_ports.of_process("self"):
            if owner != os.getuid() and port != SSH_PORT:
                self.knocks += 1
                if open_ports.shout(kind, address, port, 0.2) == "answers":
                    self.could["answered"].add(f"{kind} {address}:{port}")
        self.count()

    def touch(self, path: pathlib.Path) -> None:
        """Tries one file or folder of another user, made since the start."""
        try:
            about = path.lstat()
        except OSError:
            return
        if about.st_uid == os.getuid() or path in self.known or stat.S_ISLNK(about.st_mode):
            return
        self.tries += 1
        if stat.S_ISDIR(about.st_mode):
            if attempt(lambda: os.listdir(path)):
                self.could["listed"].add(str(path))
            if attempt(lambda: (path / "planted").write_text("x")):
                self.could["written"].add(str(path / "planted"))
        elif stat.S_ISREG(about.st_mode):
            if attempt(lambda: os.close(os.open(path, os.O_RDONLY))):
                self.could["read"].add(str(path))
            if attempt(lambda: os.close(os.open(path, os.O_WRONLY))):
                self.could["written"].add(str(path))
        elif stat.S_ISSOCK(about.st_mode):
            self.speak_to(str(path))
        for deed in (
            lambda: path.rename(self.lair / "stolen"),
            lambda: os.link(path, self.lair / "linked"),
            lambda: path.unlink(),
        ):
            if attempt(deed):
                self.could["written"].add(str(path))

    def look_into(self, process: str) -> None:
        """Tries another user's process."""
        try:
            if os.stat(process).st_uid == os.getuid():
                return
        except OSError:
            return
        self.tries += 1
        for name in ("environ", "mem", "maps", "fd", "map_files"):
            if attempt(lambda path=f"{process}/{name}": take(path)):
                self.could["read"].add(f"{process}/{name}")
        try:
            if self.mark in pathlib.Path(f"{process}/cmdline").read_bytes():
                self.could["read"].add(f"{process}/cmdline")
        except OSError:
            pass

    def speak_to(self, name: str) -> None:
        """Tries a unix socket, by path, or by @name for an abstract one."""
        self.tries += 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(0.2)
            if attempt(lambda: peer.connect("\0" + name[1:] if name.startswith("@") else name)):
                self.could["spoke"].add(name)

    def report(self) -> dict[str, object]:
        own = ("stolen", "linked", "rounds")
        planted = [str(path) for trap in self.traps for path in everything(trap) if path.name not in own]
        told = {word: sorted(found) for word, found in self.could.items()}
        return {**told, "planted": planted, "rounds": self.rounds, "tries": self.tries, "knocks": self.knocks}


def everything(top: pathlib.Path) -> list[pathlib.Path]:
    """All visible paths below a folder."""
    found = []
    for folder, folders, files in os.walk(top):
        found += [pathlib.Path(folder) / name for name in (*folders, *files)]
    return found


def take(path: str) -> None:
    """Reads a part of a file or a folder; OSError if that is impossible, or it is empty."""
    if os.path.isdir(path):
        os.listdir(path)
    elif not pathlib.Path(path).open("rb").read(1):
        raise OSError


def attempt(deed: object) -> bool:
    """Calls `deed`, and returns whether it raised no OSError."""
    try:
        deed()  # type: ignore[operator]
    except OSError:
        return False
    return True


def main() -> None:
    """See the file's comment."""
    if os.uname().nodename not in NAMES:
        sys.exit("only for a test's own hosts")
    uid, mark = int(sys.argv[1]), sys.argv[2]
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.nice(10)
    os.umask(0)
    intruder = Intruder(mark)
    intruder.plant()
    print("ready", flush=True)
    while not select.select([0], [], [], 0.01)[0]:
        intruder.round()
    print(json.dumps(intruder.report()), flush=True)


if __name__ == "__main__":
    main()
