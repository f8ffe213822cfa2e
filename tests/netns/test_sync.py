"""hvdrun --sync: a folder's copies on other hosts, their updates, and all that it must not touch there."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

STRANGER = 4321
ODD = [
    "-rf",
    "a b",
    "new\nline",
    "per%0Acent%",
    "quote'd",
    "$(touch ran)",
    "ümlaut",
    "*",
    " blank ",
    "x" * 250,
    "deep/" * 40 + "end",
]


@pytest.fixture
def folders(two_hosts: Cluster) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """The folder /tmp/work/job on alpha, with a program, and its place on beta, where /tmp/work is."""
    for host in two_hosts.names:
        shutil.rmtree(two_hosts.tmp(host) / "work", ignore_errors=True)
        (two_hosts.tmp(host) / "work").mkdir()
    here, there = (two_hosts.tmp(host) / "work/job" for host in two_hosts.names)
    (here / "lib").mkdir(parents=True)
    (here / "lib/module.py").write_text("first\n")
    (here / "run.sh").write_text("#!/bin/sh\necho ran $(cat lib/module.py)\n")
    (here / "run.sh").chmod(0o750)
    yield here, there


def sync(hosts: Cluster, *options: str, folder: str = "/tmp/work/job", **variables: str) -> subprocess.CompletedProcess[str]:
    """A job on both hosts that runs the folder's program."""
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1", "--sync", folder, *options, "--", "./run.sh"]
    done = hosts.run("alpha", argv, env=jobs.environment(**variables), cwd="/tmp/work/job", timeout=90)
    return subprocess.CompletedProcess(argv, done.returncode, done.stdout, hvdrun.said(done.stderr))


def tree(folder: pathlib.Path) -> dict[str, object]:
    """All below a folder: name → owner, mode, and content or target."""
    found: dict[str, object] = {}
    for path in [folder, *sorted(folder.rglob("*"))] if folder.is_dir() else [folder]:
        about = path.lstat()
        content: object = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (about.st_uid, oct(about.st_mode), content)
    return found


def copied(folder: pathlib.Path) -> dict[str, object]:
    """The tree of a copy, without the folder itself and its mark."""
    return {name: what for name, what in tree(folder).items() if name not in (".", ".hvdrun-sync")}


def test_a_copy_and_its_update(two_hosts: Cluster, folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    """A sync copies odd names, modes and links. A later sync removes exactly those files on the host that were removed here."""
    here, there = folders
    for name in ODD:
        (here / "odd" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "odd" / name).write_text(name)
    (here / "odd/empty").mkdir()
    (here / "away").symlink_to("/etc")
    (here / "lost").symlink_to("nowhere")
    os.link(here / "run.sh", here / "again.sh")
    os.mkfifo(here / "pipe")
    for name in (".git", ".venv", "lib/__pycache__"):
        (here / name).mkdir()
        (here / name / "file").write_text("not copied")
    done = sync(two_hosts)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0 alpha] ran first", "[1 beta] ran first"]
    assert "hvdrun: copied /tmp/work/job to 1 host: " in done.stderr
    kept_here = {
        n: w for n, w in copied(here).items() if not any(part in n for part in (".git", ".venv", "__pycache__", "pipe"))
    }
    assert copied(there) == kept_here
    assert (there / ".hvdrun-sync").stat().st_mode & 0o777 == 0o600

    (there / "odd/result").write_text("of the job there")
    (there / "odd/empty/result").write_text("of the job there")
    (there / "odd/a b").write_text("changed there")
    (there / ".venv").mkdir()
    (there / ".venv/lib").symlink_to("/etc")
    shutil.rmtree(here / "odd")
    (here / "away").unlink()
    (here / "away").mkdir()
    (here / "away/file").write_text("in a folder now")
    (here / "lib/module.py").write_text("second\n")
    done = sync(two_hosts)
    assert done.returncode == 0, done.stderr
    assert "[1 beta] ran second" in done.stdout
    assert (there / "away/file").read_text() == "in a folder now"
    assert not (there / "away").is_symlink()
    left = {str(p.relative_to(there)) for p in (there / "odd").rglob("*") if p.is_file()}
    assert left == {"odd/result", "odd/empty/result", "odd/a b"}
    assert (there / ".venv/lib").is_symlink()
    assert pathlib.Path("/etc/passwd").exists()


def strangers_files(there: pathlib.Path) -> None:
    there.mkdir()
    (there / "thesis.tex").write_text("of ours, but not of hvdrun's")


def empty_folder(there: pathlib.Path) -> None:
    there.mkdir()


def strangers_folder(there: pathlib.Path) -> None:
    there.mkdir()
    (there / ".hvdrun-sync").write_text("hvdrun sync 1\n")
    os.chown(there, STRANGER, STRANGER)


def open_folder(there: pathlib.Path) -> None:
    there.mkdir()
    (there / ".hvdrun-sync").write_text("hvdrun sync 1\n")
    there.chmod(0o777)


def strangers_mark(there: pathlib.Path) -> None:
    there.mkdir()
    (there / ".hvdrun-sync").write_text("hvdrun sync 1\n")
    os.chown(there / ".hvdrun-sync", STRANGER, STRANGER)


def linked_mark(there: pathlib.Path) -> None:
    there.mkdir()
    (there / "mark").write_text("hvdrun sync 1\n")
    (there / ".hvdrun-sync").symlink_to("mark")


def link_to_a_folder(there: pathlib.Path) -> None:
    (there.parent / "elsewhere").mkdir()
    (there.parent / "elsewhere/.hvdrun-sync").write_text("hvdrun sync 1\n")
    there.symlink_to("elsewhere")


def link_to_nothing(there: pathlib.Path) -> None:
    there.symlink_to("elsewhere")


def file_in_its_place(there: pathlib.Path) -> None:
    there.write_text("a file")


def strangers_link_above(there: pathlib.Path) -> None:
    there.parent.rename(there.parent.with_name("real"))
    there.parent.symlink_to("real")
    os.chown(there.parent, STRANGER, STRANGER, follow_symlinks=False)


def strangers_folder_above(there: pathlib.Path) -> None:
    os.chown(there.parent, STRANGER, STRANGER)


def marked(there: pathlib.Path) -> None:
    there.mkdir()
    (there / ".hvdrun-sync").write_text("hvdrun sync 1\nf 6 0 ../victim\nf 6 0 lib/../../victim\nf 6 0 /tmp/work/victim\n")
    (there.parent / "victim").write_text("victim")
    os.utime(there.parent / "victim", (0, 0))


def link_for_a_folder_inside(there: pathlib.Path) -> None:
    marked(there)
    (there.parent / "elsewhere").mkdir()
    (there / "lib").symlink_to("../elsewhere")


def strangers_file_inside(there: pathlib.Path) -> None:
    marked(there)
    (there / "lib").mkdir()
    (there / "lib/module.py").write_text("mine")
    os.chown(there / "lib/module.py", STRANGER, STRANGER)


REFUSED: dict[Callable[[pathlib.Path], None], str] = {
    strangers_files: "has a folder /tmp/work/job that hvdrun did not make",
    empty_folder: "has a folder /tmp/work/job that hvdrun did not make",
    strangers_folder: "has a folder /tmp/work/job of another user",
    open_folder: "has a /tmp/work/job that others could have put there",
    strangers_mark: "has a folder /tmp/work/job that hvdrun did not make",
    linked_mark: "has a folder /tmp/work/job that hvdrun did not make",
    link_to_a_folder: "has a symbolic link in place of /tmp/work/job",
    link_to_nothing: "has a symbolic link in place of /tmp/work/job",
    file_in_its_place: "cannot enter /tmp/work/job",
    strangers_link_above: "has a link of another user: /tmp/work",
    strangers_folder_above: "has a /tmp/work that others could have put there",
    link_for_a_folder_inside: "has a symbolic link in place of the folder /tmp/work/job/lib",
    strangers_file_inside: "has a file of another user in /tmp/work/job: ./lib/module.py",
}


@pytest.mark.parametrize("trap", list(REFUSED), ids=lambda trap: trap.__name__)
def test_nothing_of_others_is_touched(
    two_hosts: Cluster, folders: tuple[pathlib.Path, pathlib.Path], trap: Callable[[pathlib.Path], None]
) -> None:
    """hvdrun names the host and the reason, changes no file there, and starts no rank."""
    _, there = folders
    trap(there)
    work = two_hosts.tmp("beta")
    try:
        before = tree(work)
        done = sync(two_hosts)
        assert tree(work) == before
        assert done.stderr.startswith(f"hvdrun: beta {REFUSED[trap]}\n        "), done.stderr
        assert done.returncode == 4
        assert done.stdout == ""
    finally:
        for path in (there.parent, there.parent.with_name("real")):
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def test_no_name_of_a_mark_leads_out(two_hosts: Cluster, folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    """A mark that somebody has changed removes nothing outside of the folder."""
    _, there = folders
    marked(there)
    assert sync(two_hosts).returncode == 0
    assert (there.parent / "victim").read_text() == "victim"


def test_a_file_that_changes_meanwhile(two_hosts: Cluster, folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    """A log that grows does not prevent the copy, which has a beginning of it."""
    here, there = folders
    stop = threading.Event()

    def write() -> None:
        with (here / "log").open("w") as log:
            while not stop.is_set():
                log.write("line\n" * 10000)
                log.flush()
                if log.tell() > 50_000_000:
                    log.seek(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = sync(two_hosts)
    finally:
        stop.set()
        writer.join()
    assert done.returncode == 0, done.stderr
    assert set((there / "log").read_text().split("\n")) <= {"line", ""}


def test_no_room(two_hosts: Cluster, folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    """hvdrun names the host and the reason. A later job completes the failed copy."""
    here, _there = folders
    (here / "data").write_bytes(os.urandom(4 << 20))
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/tmp/work"]
    assert two_hosts.run("beta", mount).returncode == 0
    try:
        done = sync(two_hosts)
        assert done.returncode == 4, done.stderr
        told = "hvdrun: beta cannot write the copy of /tmp/work/job: its disk is full\n"
        assert done.stderr.startswith(told), done.stderr
        assert two_hosts.run("beta", ["mount", "-o", "remount,size=9m", "/tmp/work"]).returncode == 0
        done = sync(two_hosts)
        assert done.returncode == 0, done.stderr
        assert (
            two_hosts.run("beta", ["cksum", "/tmp/work/job/data"]).stdout
            == two_hosts.run("alpha", ["cksum", "/tmp/work/job/data"]).stdout
        )
    finally:
        two_hosts.run("beta", ["umount", "/tmp/work"])


def test_uv(two_hosts: Cluster, folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    """With a lock file, uv installs the packages on each host. If that fails, the message has uv's last line."""
    here, _there = folders
    for host, name, text in (
        ("alpha", "ssh", 'exec ssh beta "PATH=/tmp/bin:$PATH exec sh"\n'),
        (
            "beta",
            "uv",
            'echo "$PWD $*" >>/tmp/uv.log\n[ ! -e broken ] || { echo no; echo error: no such package; exit 2; } >&2\n',
        ),
    ):
        program = two_hosts.tmp(host) / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n" + text)
        program.chmod(0o755)
    assert sync(two_hosts, "--ssh-program", "/tmp/bin/ssh").returncode == 0
    assert not (two_hosts.tmp("beta") / "uv.log").exists()
    (here / "uv.lock").write_text("version = 1\n")
    assert sync(two_hosts, "--ssh-program", "/tmp/bin/ssh").returncode == 0
    assert (two_hosts.tmp("beta") / "uv.log").read_text() == "/tmp/work/job sync --frozen\n"
    (here / "broken").touch()
    done = sync(two_hosts, "--ssh-program", "/tmp/bin/ssh")
    told = "hvdrun: beta uv sync --frozen failed in /tmp/work/job: error: no such package\n"
    assert done.stderr.startswith(told), done.stderr
    assert done.returncode == 4


def test_a_folder_that_the_hosts_share(two_hosts: Cluster, folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    """The sync writes nothing into a folder that both hosts see."""
    shared = jobs.BUILD / "shared-by-hosts"
    with contextlib.suppress(FileExistsError):
        shared.mkdir()
    try:
        (shared / "file").write_text("one for all")
        before = tree(shared)
        done = sync(two_hosts, folder=str(shared))
        assert f"hvdrun: all hosts share {shared}\n" in done.stderr, done.stderr
        assert tree(shared) == before
    finally:
        shutil.rmtree(shared)


def test_what_cannot_be_copied(two_hosts: Cluster, folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    """A folder that is missing, the whole disk, and a host without sshd."""
    for folder, told in (("/none", "there is no folder /none"), ("/", "cannot copy the folder /")):
        done = sync(two_hosts, folder=folder)
        assert done.stderr.startswith(f"hvdrun: --sync: {told}\n"), done.stderr
        assert done.returncode == 2
    done = sync(two_hosts, "-p", "2223")
    assert done.stderr.startswith("hvdrun: --sync: beta has no copy of /tmp/work/job: nothing listens for ssh on beta"), (
        done.stderr
    )
    assert done.returncode == 4
