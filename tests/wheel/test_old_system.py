"""The wheel for glibc 2.27, in a root with nothing but that C library and a CPython: scripts/test --nightly glibc makes all.

The kernel is this machine's. Some tests deny the system calls that Linux 4.18 of RHEL 8 lacks.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from support import environments, old_kernel

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYSTEM = ROOT / ".cache/glibc-2.27"
ABI = ROOT / "tests/launcher/abi"
ENTER = """set -eu
root=$1 job=$2
shift 2
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/job" "$root/bin" "$root/python"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$job" "$root/job"
[ ! -d "$root/../python" ] || mount --bind "$root/../python" "$root/python"
status=0
chroot "$root" "$@" || status=$?
exit $status
"""


KERNELS = pytest.mark.parametrize("kernel", ["", "4.18"], ids=["this kernel", "kernel 4.18"])


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
    environments.laid_out(wheel, folder)
    library = folder / "lib/python/hvd"
    links = [f"-L{library}", "-lhvd", "-Wl,-rpath,/job/lib/python/hvd"]
    command = [str(SYSTEM / "tool/bin/cc"), "-o", str(folder / "old_program"), str(ABI / "old_program.c"), *links]
    subprocess.run(command, check=True, timeout=60)
    return folder


def inside(folder: pathlib.Path, *command: str, kernel: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command in the system, where the folder is /job, on this kernel or without the calls that 4.18 lacks."""
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    argv = [*namespaces, "sh", "-c", ENTER, "enter", str(SYSTEM / "root"), str(folder), *command]
    env = {
        "PATH": "/job/bin:/python/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",
        "PYTHONPATH": "/job/lib/python",
        "LD_LIBRARY_PATH": "/python/lib",
    }
    limits = old_kernel.enter if kernel == "4.18" else None
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env, preexec_fn=limits)
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
        said = subprocess.run(["readelf", "-dVW", path], capture_output=True, text=True, timeout=20).stdout
        assert "libstdc++" not in said and "GLIBCXX_" not in said and "CXXABI_" not in said, path.name
        assert max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", said)) <= 27, path.name
        said = subprocess.run(["nm", "--dynamic", "--defined-only", path], capture_output=True, text=True, timeout=20).stdout
        offered = {line.split()[-1].split("@")[0] for line in said.splitlines()}
        assert offered.isdisjoint({"_ZSt4cout", "_ZNSt6localeC1Ev", "__cxa_throw", "__gxx_personality_v0"}), path.name


@pytest.mark.parametrize("program", ["hvdrun", "hvd-timeline"])
def test_programs_start(program: str, installed: pathlib.Path) -> None:
    done = inside(installed, f"/job/bin/{program}", "--version")
    assert done.returncode == 0, done.stderr


@KERNELS
def test_two_ranks_of_a_program(kernel: str, installed: pathlib.Path) -> None:
    """The ranks are bound to cores, meet, sum and gather. hvdrun reports that no process is left."""
    done = inside(installed, "/job/bin/hvdrun", "--verbose", "-np", "2", "/job/old_program", kernel=kernel)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("old program: ok") == 2
    assert "0 processes left on 1 host" in done.stderr


LOADER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** words) {
  for (int at = 1; at < count; ++at)
    if (dlopen(words[at], RTLD_NOW) == NULL) return puts(dlerror()), 1;
  return 0;
}
"""


def test_every_library_loads_at_once(installed: pathlib.Path) -> None:
    """The loader of glibc 2.27 finds each symbol of each library."""
    compiler = [str(SYSTEM / "tool/bin/cc"), "-x", "c", "-", "-o", str(installed / "loader"), "-ldl"]
    subprocess.run(compiler, input=LOADER, text=True, check=True, timeout=60)
    needs_more = ("libhvd_mpi.so", "_native.abi3.so")  # MPI, Python
    libraries = [path for path in sorted((installed / "lib").rglob("*.so*")) if path.name not in needs_more]
    assert len(libraries) >= 5
    for library in libraries:
        done = inside(installed, "/job/loader", f"/job/{library.relative_to(installed)}")
        assert done.returncode == 0, (library, done.stdout)


@pytest.fixture(scope="module")
def environment(installed: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of `installed`, with NumPy. Installs without pip: Debian's CPython has no expat, which pip needs."""
    if not (SYSTEM / "python/bin/python3").exists():
        pytest.skip("scripts/wheel-glibc-2.27 --with-python makes the system's Python")
    folder = tmp_path_factory.mktemp("environment")
    version = next((SYSTEM / "python/lib").glob("python3.*")).name.removeprefix("python")
    system = ["--only-binary=:all:", "--platform=manylinux_2_27_x86_64", f"--python-version={version}"]
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"--dest={folder}/wheels", *system]
    environments.bounded([*download, "numpy", "cloudpickle"], 300)
    for archive in (folder / "wheels").glob("*.whl"):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(installed / "lib/python")
    return installed


JOB = """
import os, platform
import numpy as np
import hvd.numpy as hvd

hvd.init()
total = hvd.allreduce(np.arange(300000.0), op=hvd.Sum)
assert (total == np.arange(300000.0) * hvd.size()).all()
rows = hvd.allgather(np.full((hvd.rank() + 1, 2), hvd.rank()))
assert rows[:, 0].tolist() == [0, 1, 1]
print("rank", hvd.rank(), "of", hvd.size(), *platform.libc_ver(), flush=True)
"""

KILLED = """
import os, signal
import numpy as np
import hvd.numpy as hvd

hvd.init()
hvd.allreduce(np.ones(3))
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(np.ones(3))
"""


@KERNELS
@pytest.mark.parametrize("how", ["a program", "embedded"])
def test_two_ranks_of_numpy(how: str, kernel: str, environment: pathlib.Path) -> None:
    (environment / "job.py").write_text(JOB)
    job = ["--", "/python/bin/python3", "/job/job.py"] if how == "a program" else ["/job/job.py"]
    done = inside(environment, "/job/bin/hvdrun", "-np", "2", *job, kernel=kernel)
    assert (done.returncode, done.stderr) == (0, "")
    said = sorted(line.split("] ")[1] for line in done.stdout.splitlines())
    assert said == ["rank 0 of 2 glibc 2.27", "rank 1 of 2 glibc 2.27"]


@KERNELS
def test_a_killed_rank(kernel: str, environment: pathlib.Path) -> None:
    """hvdrun names the rank and its end, and leaves no process."""
    (environment / "killed.py").write_text(KILLED)
    done = inside(environment, "/job/bin/hvdrun", "--verbose", "-np", "2", "/job/killed.py", kernel=kernel)
    assert done.returncode == 137, done.stderr
    assert "rank 1 on localhost was killed by signal 9 (SIGKILL)" in done.stderr
    assert "0 processes left on 1 host" in done.stderr
