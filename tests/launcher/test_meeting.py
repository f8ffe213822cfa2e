"""Ranks find their world through their host daemon: without MPI, repeatedly, some of them, and after others have ended."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

from support import hvdrun

# The beginning of every program below.
HEAD = """
import os, sys, time
import numpy as np
import hvd.numpy as hvd
launched = int(os.environ["HVD_RANK"])
def total(): return float(hvd.allreduce(np.ones(3), op=hvd.Sum, name="total")[0])
def sockets():
    found = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    return {name[8:-1] for name in found if name.startswith("socket:")}
"""


def job(ranks: int, program: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A job of Python ranks."""
    code = HEAD + textwrap.dedent(program)
    return hvdrun.run("--launcher", "hvdrun", "-np", str(ranks), *args, "--", sys.executable, "-c", code, env=env)


def check(done: subprocess.CompletedProcess[str], words: str, ranks: int) -> None:
    """All ranks have printed these words."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(words) == ranks, done.stdout + done.stderr


@pytest.fixture
def no_mpi(tmp_path: pathlib.Path) -> dict[str, str]:
    """An environment in which neither Open MPI nor PMIx can be loaded or started."""
    for name in ("libpmix.so.2", "libmpi.so.40"):
        (tmp_path / name).touch()  # the loader finds it first
    (tmp_path / "bin").mkdir()
    for name in ("sh", "true"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    return {"LD_LIBRARY_PATH": str(tmp_path), "PATH": str(tmp_path / "bin")}


@pytest.mark.parametrize("per_node", ["0", "1"])
def test_a_world_without_mpi(no_mpi: dict[str, str], per_node: str) -> None:
    """MPI is not loaded even if it exists, nor is OpenSSL within a host."""
    program = """
    hvd.init()
    assert total() == hvd.size() == 3 and hvd.rank() == launched
    loaded = open("/proc/self/maps").read()
    assert not [name for name in ("libmpi", "libpmix", "libhvd_mpi") if name in loaded]
    assert hvd.mpi_threads_supported() and hvd.mpi_enabled() and hvd.mpi_built()
    print("well")
    """
    check(job(3, program, HVD_RANKS_PER_NODE=per_node, **no_mpi), "well", 3)
    check(job(3, program, HVD_RANKS_PER_NODE=per_node), "well", 3)


def test_mpi_where_it_is_asked_for(no_mpi: dict[str, str]) -> None:
    program = "hvd.init(); assert total() == 2; print('libmpi' in open('/proc/self/maps').read())"
    check(job(2, program, "--transport", "mpi"), "True", 2)
    done = job(2, program, "--transport", "mpi", **no_mpi)
    assert done.returncode != 0
    assert "MPI: cannot load it: " in done.stderr, done.stderr
    assert "pip install 'hvdrun[mpi]'" in done.stderr, done.stderr
    done = job(2, "os.environ['HVD_TRANSPORT'] = ['mpi', 'tcp'][launched]\nhvd.init()")
    assert done.returncode != 0
    assert re.search("HVD_TRANSPORT: rank [01] has '(mpi|tcp)', rank [01] has '(mpi|tcp)'", done.stderr), done.stderr


def test_again_and_again() -> None:
    """Each world is new, and leaves nothing: descriptors, threads, files in /dev/shm."""
    program = """
    def things():
        mine = [name for name in os.listdir("/dev/shm") if f".{os.getpid()}." in name]
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), mine
    for turn in range(40):
        hvd.init()
        assert total() == 3
        hvd.shutdown()
        if turn == 2: before = things()
    assert things() == before, (things(), before)
    print("well")
    """
    check(job(3, program), "well", 3)


def test_some_of_the_ranks() -> None:
    """Two worlds at once, in different orders; then all ranks; then one of them alone."""
    program = """
    ranks = [[2, 0], [1, 3]][launched % 2]
    hvd.init(ranks)
    assert (hvd.size(), hvd.rank(), total()) == (2, ranks.index(launched), 2.0)
    hvd.shutdown(); hvd.init()
    assert (hvd.size(), hvd.rank(), total()) == (4, launched, 4.0)
    hvd.shutdown()
    if launched == 2:
        hvd.init([2])
        assert (hvd.size(), hvd.rank(), total()) == (1, 0, 1.0)
    print("well")
    """
    check(job(4, program), "well", 4)


@pytest.mark.parametrize("ranks", ["[0, 7]", "[1 - launched]", "[0, 1, 0]"])
def test_ranks_that_cannot_be(ranks: str) -> None:
    program = f"""
    try: hvd.init({ranks})
    except ValueError as e: print("refused:", e)
    """
    check(job(2, program), "refused: init: ", 2)


@pytest.mark.parametrize("when", ["before", "after"])
def test_mpi4py_beside_it(when: str) -> None:
    pytest.importorskip("mpi4py")
    program = f"""
    if {when == "before"}: from mpi4py import MPI
    hvd.init()
    from mpi4py import MPI
    assert hvd.mpi_threads_supported()
    world = MPI.COMM_WORLD
    assert (world.rank, world.size, world.allreduce(1)) == (hvd.rank(), hvd.size(), 4) and total() == 4
    hvd.shutdown()
    hvd.init(comm=world.Split(world.rank % 2))
    assert (hvd.size(), hvd.rank(), total()) == (2, launched // 2, 2.0)
    print("well")
    """
    check(job(4, program), "well", 4)


def test_who_is_missing_is_named() -> None:
    program = """
    if launched == 1: time.sleep(60)
    try: hvd.init()
    except hvd.HorovodInternalError as e: print("told:", e, flush=True)
    os.kill(os.getppid(), 15)
    """
    done = job(2, program.replace("hvd.Hor", "__import__('hvd').Hor"), HVD_INIT_TIMEOUT="1")
    assert "told: init: waited too long for 1 rank(s) to join, first rank 1 (did every rank call init?)" in done.stdout, (
        done.stdout + done.stderr
    )


def test_who_waits_for_a_rank_that_has_ended_hears_of_it_at_once() -> None:
    """HVD_INIT_TIMEOUT is ten minutes."""
    program = """
    if launched == 1: sys.exit(0)
    begin = time.monotonic()
    try: hvd.init()
    except __import__("hvd").HorovodInternalError as e: print("told:", e, time.monotonic() - begin < 60)
    """
    done = job(2, program)
    assert done.returncode == 0, done.stderr
    assert "told: init: rank 1 has ended True" in done.stdout, done.stdout + done.stderr


def test_ranks_listen_on_no_port_and_under_no_name() -> None:
    """While ranks of one host communicate, their unix sockets have no file and no abstract name."""
    program = """
    hvd.init()
    assert total() == 2
    own = sockets()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        assert not own & {line.split()[9] for line in open(f"/proc/net/{table}").readlines()[1:]}, table
    lines = [line.split() for line in open("/proc/net/unix").readlines()[1:]]
    named = [words[7] for words in lines if len(words) > 7 and words[6] in own]
    assert named and not [name for name in named if name.startswith("@") or os.path.exists(name)], named
    assert total() == 2
    print("well")
    """
    check(job(2, program, HVD_RANKS_PER_NODE="1"), "well", 2)


CONTAINERS = {
    "processes": "exec unshare -pf --mount-proc",
    "users": "exec unshare -U",
    "shared memory": "exec unshare -m sh -c 'mount -t tmpfs tmpfs /dev/shm && exec \"$@\"' sh",
    "one of three": '[ $HVD_RANK = 1 ] || exec "$@"; exec unshare -pf --mount-proc',
    "no network": "exec unshare -pf --mount-proc",
}


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize("what", CONTAINERS)
def test_ranks_in_containers_of_their_own(what: str) -> None:
    """Ranks of one host that share neither memory nor unix sockets connect by TCP.  Before, Open MPI crashed."""
    lines = [
        "hvd.init()",
        "assert hvd.size() == 3 and total() == 3",
        "assert hvd.allreduce(np.ones(1 << 18), op=hvd.Sum, name='large')[0] == 3",
        "print('well')",
    ]
    program = HEAD + "\n".join(lines)
    ranks = ["sh", "-c", f'{CONTAINERS[what]} "$@"', "sh", sys.executable, "-c", program]
    command = [hvdrun.program(), "-np", "3", "--", *ranks]
    if what == "no network":
        command = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    done = subprocess.run(command, env=hvdrun.environment(), capture_output=True, text=True, timeout=120)
    check(done, "well", 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="a rank of another user needs root")
def test_a_rank_of_another_user_is_told() -> None:
    program = "import hvd.numpy as hvd; hvd.init()"
    other = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", sys.executable, "-c", program]
    done = hvdrun.run("-np", "2", "--", *other)
    assert done.returncode == 1 and "this process runs as uid 12345, its host daemon as uid 0" in done.stderr, done.stderr


def test_a_process_without_its_descriptor_is_no_rank() -> None:
    """Another descriptor under the number of HVD_MEETING_FD is left alone."""
    program = """
    if launched == 0:
        fd = int(os.environ["HVD_MEETING_FD"])
        os.close(fd)
        os.dup2(os.open("/dev/null", os.O_RDWR), fd)
        os.environ["HVD_TRANSPORT"] = "auto"
        for name in ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK"): os.environ.pop(name)
        hvd.init()
        assert hvd.size() == 1
    print("well")
    """
    check(job(2, program), "well", 2)


def test_a_rank_without_its_variables_does_not_train_alone() -> None:
    program = """
    os.environ.clear()
    try: hvd.init()
    except ValueError as e: print("told:", e)
    """
    check(job(2, program), "told: init: hvdrun has started this rank, but its variables are gone", 2)


def test_a_rank_that_talks_nonsense_to_its_daemon() -> None:
    """Only that rank is cut off, and ranks that wait for it learn of its end."""
    program = """
    import socket
    if launched == 0:
        line = socket.socket(fileno=os.dup(int(os.environ["HVD_MEETING_FD"])))
        line.sendall(bytes(range(256)) * 40)
        assert line.recv(1) == b""
        sys.exit(0)
    try: hvd.init()
    except __import__("hvd").HorovodInternalError as e: print("told:", e)
    """
    check(job(3, program), "told: init: rank 0 has ended", 2)
