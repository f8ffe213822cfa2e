"""The wheel for glibc 2.27, in a root with nothing but that C library: scripts/test --nightly glibc makes both."""

from __future__ import annotations

import pathlib
import re
import subprocess
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYSTEM = ROOT / ".cache/glibc-2.27"
ABI = ROOT / "tests/launcher/abi"
ENTER = """set -eu
root=$1 job=$2
shift 2
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/job" "$root/bin"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$job" "$root/job"
status=0
chroot "$root" "$@" || status=$?
exit $status
"""


@pytest.fixture(scope="module")
def wheel() -> pathlib.Path:
    """The one wheel that needs no newer C library."""
    wheels = list((ROOT / "dist/glibc-2.27").glob("*.whl"))
    if len(wheels) != 1 or not (SYSTEM / "root").exists():
        pytest.skip("scripts/wheel-glibc-2.27 makes the wheel and its system")
    return wheels[0]


@pytest.fixture(scope="module")
def installed(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel's files in pip's layout, and a program in C with two ranks' work."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "lib/python")
    (data,) = (folder / "lib/python").glob("*.data")
    (data / "data/lib/hvdrun").rename(folder / "lib/hvdrun")
    (data / "scripts").rename(folder / "bin")
    for program in (folder / "bin").iterdir():
        program.chmod(0o755)
    library = folder / "lib/python/hvd"
    links = [f"-L{library}", "-lhvd", "-Wl,-rpath,/job/lib/python/hvd"]
    command = [str(SYSTEM / "tool/bin/cc"), "-o", str(folder / "old_program"), str(ABI / "old_program.c"), *links]
    subprocess.run(command, check=True, timeout=60)
    return folder


def inside(folder: pathlib.Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in the system, where the folder is /job."""
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    argv = [*namespaces, "sh", "-c", ENTER, "enter", str(SYSTEM / "root"), str(folder), *command]
    env = {"PATH": "/job/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env)
    if "unshare failed" in done.stderr:
        pytest.skip("no user namespaces here")
    return done


def test_the_tag(wheel: pathlib.Path) -> None:
    found = re.search(r"manylinux_2_(\d+)_x86_64", wheel.name)
    assert found is not None and int(found[1]) <= 27


def test_no_file_needs_a_libstdcxx(installed: pathlib.Path) -> None:
    """RHEL 8's is of GCC 8; and no file offers its own one to others."""
    binaries = [path for path in installed.rglob("*") if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
    assert len(binaries) > 8
    for path in binaries:
        said = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, timeout=20).stdout
        assert "libstdc++" not in said, path.name
        said = subprocess.run(["nm", "--dynamic", "--defined-only", path], capture_output=True, text=True, timeout=20).stdout
        offered = {line.split()[-1].split("@")[0] for line in said.splitlines()}
        assert offered.isdisjoint({"_ZSt4cout", "_ZNSt6localeC1Ev", "__cxa_throw", "__gxx_personality_v0"}), path.name


@pytest.mark.parametrize("program", ["hvdrun", "hvd-timeline"])
def test_programs_start(program: str, installed: pathlib.Path) -> None:
    done = inside(installed, f"/job/bin/{program}", "--version")
    assert done.returncode == 0, done.stderr


def test_two_ranks_of_a_program(installed: pathlib.Path) -> None:
    """They are bound to cores, meet, sum and gather, and hvdrun says what is left."""
    done = inside(installed, "/job/bin/hvdrun", "--verbose", "-np", "2", "/job/old_program")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("old program: ok") == 2
    assert "0 processes left on 1 host" in done.stderr


def test_every_library_loads_at_once(installed: pathlib.Path) -> None:
    """The loader of glibc 2.27 finds each symbol of each library, as LD_BIND_NOW asks."""
    for library in sorted((installed / "lib").rglob("*.so*")):
        if library.name in ("libhvd_mpi.so", "_native.abi3.so") or "licences" in library.parts:
            continue  # they need MPI, and Python
        name = f"/job/{library.relative_to(installed)}"
        done = inside(installed, "/lib64/ld-linux-x86-64.so.2", "--preload", name, "/job/bin/hvd-timeline", "--version")
        assert done.returncode == 0 and "ERROR" not in done.stderr, (name, done.stderr)
