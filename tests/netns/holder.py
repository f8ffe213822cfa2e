"""The process that makes the hosts of a cluster and keeps them alive: holder.py STATE COUNT TTL.

The holder moves into its own network namespace with a bridge (the switch), starts COUNT hosts, and prints one JSON line
{"switch": pid, "hosts": {name: pid}}.  Then it waits for the end of its stdin, for SIGTERM, or for TTL seconds.  Each host's
first process dies with the holder, and the kernel then ends all others of its process namespace.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from netns.cluster import NAMES, NETWORK, START_LIMIT_SECONDS, wait_for

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x20000000,
    0x40000000,
)
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 1 << 18, 0x1000
PR_SET_PDEATHSIG = 1


def check(result: int, what: str) -> None:
    """Raises OSError if a C call failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent() -> None:
    """This process gets SIGKILL when its parent ends."""
    parent = os.getppid()
    check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def tool(*argv: str) -> None:
    """Runs a program; its stderr becomes the error's text."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """mount(2); the error names the target."""
    result = LIBC.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, flags, data.encode() if data else None
    )
    check(result, f"mount {target}")


def write_settings(state: pathlib.Path, names: tuple[str, ...]) -> None:
    """Keys, ssh settings, hosts file and shadow file, shared by all hosts of the cluster."""
    ssh = state / "ssh"
    ssh.mkdir(mode=0o755)
    for key in ("host_key", "user_key"):
        tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", str(ssh / key))
    (ssh / "authorized_keys").write_bytes((ssh / "user_key.pub").read_bytes())
    public = " ".join((ssh / "host_key.pub").read_text().split()[:2])
    everyone = ",".join([*names, *(f"{NETWORK}.{i + 1}" for i in range(len(names))), "localhost", "127.0.0.1"])
    (ssh / "known_hosts").write_text(f"{everyone} {public}\n")
    (ssh / "ssh_config").write_text(
        "Host *\n"
        "  IdentityFile /etc/ssh/user_key\n  IdentitiesOnly yes\n  UserKnownHostsFile /dev/null\n"
        "  GlobalKnownHostsFile /etc/ssh/known_hosts\n  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR\n"
    )
    (ssh / "sshd_config").write_text(
        "Port 22\nHostKey /etc/ssh/host_key\nAuthorizedKeysFile /etc/ssh/authorized_keys\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nUsePAM no\nStrictModes no\nUseDNS no\nPidFile none\nMaxStartups 100\nLogLevel INFO\n"
    )
    hosts = "".join(f"{NETWORK}.{i + 1} {name}\n" for i, name in enumerate(names))
    (state / "hosts").write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost\n" + hosts)
    (state / "resolv.conf").write_text("# no name servers: unknown names fail at once\n")
    lines = pathlib.Path("/etc/shadow").read_text().splitlines()
    (state / "shadow").write_text("\n".join("root:*:19000:0:99999:7:::" if x.startswith("root:") else x for x in lines) + "\n")
    (state / "shadow").chmod(0o600)


def private_root(spare: pathlib.Path) -> None:
    """Makes this process's mounts private.  In a chroot, / is no mount that could be made private, so a bind of it is."""
    try:
        mount("none", "/", None, MS_REC | MS_PRIVATE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        spare.mkdir()
        mount("/", str(spare), None, MS_BIND | MS_REC)
        mount("none", str(spare), None, MS_REC | MS_PRIVATE)
        os.chroot(spare)
        os.chdir("/")


def private_files(state: pathlib.Path, name: str) -> None:
    """Gives the calling host its own view of the folders that distinguish machines."""
    private_root(state / name / "root")
    mount("proc", "/proc", "proc")
    mount("shm", "/dev/shm", "tmpfs", 0, "mode=1777,size=4g")
    for target in ("hosts", "resolv.conf", "shadow"):
        where = os.path.realpath(f"/etc/{target}")
        if os.path.exists(where):
            mount(str(state / target), where, None, MS_BIND)
    mount(str(state / "ssh"), "/etc/ssh", None, MS_BIND)
    if os.path.isdir("/root/.ssh"):
        mount("none", "/root/.ssh", "tmpfs", 0, "mode=700")
    mount("run", "/run", "tmpfs", 0, "mode=755")
    os.mkdir("/run/sshd", 0o755)
    tree = pathlib.Path(__file__).resolve().parents[2]
    if tree.is_relative_to("/tmp"):  # every host must see the sources, and their builds
        inside = state / name / "tmp" / tree.relative_to("/tmp")
        inside.mkdir(parents=True)
        mount(str(tree), str(inside), None, MS_BIND | MS_REC)
    mount(str(state / name / "tmp"), "/tmp", None, MS_BIND | MS_REC)  # last, because the state folder is in the old /tmp


def host_main(state: pathlib.Path, name: str) -> None:
    """The first process of a host: sshd's parent, and the reaper of orphans.  Does not return."""
    die_with_parent()
    log = os.open(state / name / "sshd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    private_files(state, name)
    check(LIBC.sethostname(name.encode(), len(name)), "sethostname")
    tool("ip", "link", "set", "lo", "up")
    os.dup2(log, 1)
    os.dup2(log, 2)
    sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e"], stdin=subprocess.DEVNULL)
    while True:
        try:
            if os.waitpid(-1, 0)[0] == sshd.pid:
                os._exit(1)
        except InterruptedError:
            pass


def start_host(state: pathlib.Path, index: int, name: str) -> int:
    """Forks a host and connects it to the bridge.  Returns its first process, with the holder's number."""
    (state / name).mkdir()
    (state / name / "tmp").mkdir()
    (state / name / "tmp").chmod(0o1777)
    # The child moves into new namespaces (a process namespace begins with its first child), so it forks once more.
    report, told = os.pipe()
    if os.fork() == 0:
        try:
            die_with_parent()
            check(LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET), "unshare")
            pid = os.fork()
            if pid == 0:
                os.close(report)
                os.close(told)
                host_main(state, name)
            os.write(told, str(pid).encode())
            os.waitpid(pid, 0)
        except BaseException as error:  # a fork must not return into the holder's code
            print(f"host {name}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    os.close(told)
    word = os.read(report, 32)
    os.close(report)
    if not word:
        raise RuntimeError(f"host {name} could not be made")
    pid = int(word)
    tool("ip", "link", "add", f"p-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    tool("ip", "link", "set", f"p-{name}", "master", "switch", "up")
    inside = ("nsenter", f"--target={pid}", "--net", "ip")
    tool(*inside, "addr", "add", f"{NETWORK}.{index + 1}/24", "dev", "eth0")
    tool(*inside, "link", "set", "eth0", "up")
    return pid


def listens(pid: int) -> bool:
    """Returns whether a process listens on port 22 in the process's network namespace."""
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(":0016") and line.split()[3] == "0A" for line in lines)


def wait_for_the_end(ttl_seconds: float) -> None:
    """Returns when stdin closes, when time is over or when a host has died."""
    end = time.monotonic() + ttl_seconds
    while (left := end - time.monotonic()) > 0:
        ready, _, _ = select.select([0], [], [], min(left, 1.0))
        if ready and not os.read(0, 4096):
            return
        if os.waitpid(-1, os.WNOHANG)[0] != 0:
            print("a host died before its time", file=sys.stderr, flush=True)
            return


def main() -> None:
    """See the file's comment."""
    state, count, ttl_seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("the hosts did not come up in time"))
    signal.alarm(int(START_LIMIT_SECONDS) + 5)
    (state / "holder.pid").write_text(str(os.getpid()))
    check(LIBC.unshare(CLONE_NEWNET), "unshare")
    tool("ip", "link", "set", "lo", "up")
    tool("ip", "link", "add", "switch", "type", "bridge", "stp_state", "0", "forward_delay", "0")
    tool("ip", "link", "set", "switch", "up")
    names = NAMES[:count]
    write_settings(state, names)
    hosts = {name: start_host(state, index, name) for index, name in enumerate(names)}
    for name, pid in hosts.items():
        wait_for(lambda pid=pid: listens(pid), START_LIMIT_SECONDS, f"sshd on {name} (see {state}/{name}/sshd.log)")
    signal.alarm(0)
    print(json.dumps({"switch": os.getpid(), "hosts": hosts}), flush=True)
    (state / "cluster.json").write_text(json.dumps({"switch": os.getpid(), "hosts": hosts}))
    wait_for_the_end(ttl_seconds)


if __name__ == "__main__":
    main()
