"""The wheel that scripts/setup built: its content, and its use on the systems that it claims to support."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from support import environments

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = "lib/hvdrun"
# PEP 600's libraries, which every system has.
EVERYWHERE = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+))\.so\.\d+")
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def built() -> pathlib.Path:
    """The wheel; HVD_TEST_WHEELS names another folder than dist."""
    folder = ROOT / os.environ.get("HVD_TEST_WHEELS", "dist")
    found = sorted(folder.glob("hvdrun-*.whl"))
    if len(found) != 1:
        pytest.skip(f"{len(found)} wheels in {folder} (scripts/setup makes one in dist)")
    return found[0]


@pytest.fixture(scope="module")
def native(built: pathlib.Path) -> pathlib.Path:
    """The wheel, if it is for this machine, and for ordinary interpreters."""
    if without_gil(built):
        pytest.skip("for CPython without a GIL")
    if not built.name.endswith(f"_{platform.machine()}.whl"):
        pytest.skip(f"{built.name} does not run here")
    return built


@pytest.fixture(scope="module")
def unpacked(built: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel's files."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder)
    return folder


def without_gil(built: pathlib.Path) -> bool:
    """The wheel for CPython without a GIL, which serves that CPython alone."""
    return "-cp313t-" in built.name


def test_one_tag_for_every_python(built: pathlib.Path) -> None:
    tag = "cp313-cp313t" if without_gil(built) else "cp39-abi3"
    assert re.fullmatch(rf"hvdrun-[\d.]+-{tag}-manylinux_2_\d+_\w+\.whl", built.name)


def test_licences_and_bill_of_materials(unpacked: pathlib.Path) -> None:
    info = next(unpacked.glob("*.dist-info"))
    assert {path.name for path in info.rglob("licenses/*")} == {"LICENSE", "THIRD-PARTY-NOTICES"}
    bill = json.loads((info / "sboms/hvdrun.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    versions = {row["bom-ref"].split(".so")[0]: row.get("version") for row in bill["components"]}
    assert versions.keys() >= {"nlohmann-json", "cppzmq", "openmpi", "libstdc++"}
    assert versions.keys() >= {"libzmq", "libhwloc", "libyaml-cpp", "libsimdjson"}
    assert all(versions.values())
    notices = (info / "licenses/THIRD-PARTY-NOTICES").read_text()
    in_ours = [row["name"] for row in bill["components"] if row["properties"][0]["value"] == "compiled in"]
    assert [name for name in in_ours if name.replace("nlohmann-json", "Niels Lohmann") not in notices] == []


def test_contents(built: pathlib.Path, unpacked: pathlib.Path) -> None:
    module = "hvd/_native.cpython-313t-x86_64-linux-gnu.so" if without_gil(built) else "hvd/_native.abi3.so"
    scripts = next(unpacked.glob("*.data/scripts"))
    assert {"hvdrun", "hvdrank", "hvd-timeline", "hvd-bench"} <= {path.name for path in scripts.iterdir()}
    assert "horovodrun = horovod.runner.launch:run_commandline" in next(unpacked.glob("*/entry_points.txt")).read_text()
    for name in (
        "hvd/libhvd.so",
        "hvd/libhvd_mpi.so",
        module,
        "hvd/libhvd_tensorflow.so",
        "hvd/libhvd_jax.so",
        "hvd/torch/__init__.py",
        "hvd/jax/__init__.py",
        "hvd/mxnet/__init__.py",
        "horovod/mxnet/__init__.py",
        "hvd/tensorflow/__init__.py",
        "hvd/keras/__init__.py",
        "horovod/tensorflow/keras/__init__.py",
        "horovod/torch/__init__.py",
    ):
        assert (unpacked / name).is_file(), name


def test_binaries_are_tied_to_nothing(unpacked: pathlib.Path) -> None:
    binaries = [path for path in unpacked.rglob("*") if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
    assert len(binaries) >= 5
    for path in binaries:
        said = subprocess.run(["readelf", "--dynamic", "--wide", str(path)], capture_output=True, text=True, timeout=20).stdout
        run_paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", said)
        # Debian's Open MPI has a run path to its own folder, searched after LD_LIBRARY_PATH, which is harmless.
        places = [part for paths in run_paths for part in paths.split(":")]
        assert all(part.startswith(("$ORIGIN", "/usr/lib/")) for part in places), (path.name, places)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", said)
        banned: tuple[str, ...] = ("libpython", "libtorch", "libtensorflow", "libcuda", "libcudart", "libnccl")
        if path.name not in ("libhvd_mpi.so", "hvd-bench"):  # loaded on demand; a benchmark of MPI itself
            banned += ("libmpi",)
        assert not [name for name in needed if name.startswith(banned)], (path.name, needed)


def elf_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The programs and libraries in a folder."""
    return [path for path in folder.rglob("*") if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]


def test_what_it_loads_comes_along(unpacked: pathlib.Path) -> None:
    bundled = next(unpacked.glob("*.data")) / "data" / FOLDER
    there = {path.name for path in elf_files(unpacked)}
    assert {"libzmq.so.5", "libhwloc.so.15"} <= there
    licences = {path.stem for path in (bundled / "licences").iterdir()}
    assert len(licences) >= len({path.name for path in bundled.glob("*.so*")}) * 3 // 4  # some packages have two libraries
    for path in elf_files(unpacked):
        said = subprocess.run(["readelf", "--dynamic", "--wide", str(path)], capture_output=True, text=True, timeout=20).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", said)
        absent = [name for name in needed if name not in there and not EVERYWHERE.fullmatch(name)]
        assert absent in ([], ["libmpi.so.40"]), path.name  # MPI is the user's: hvdrun[mpi], or the cluster's
        if needed_ours := [name for name in needed if name in there and name != "libhvd.so"]:
            (run_path,) = re.findall(r"\(RUNPATH\).*\[(.*)\]", said)
            assert run_path == ("$ORIGIN" if path.parent == bundled else f"$ORIGIN/../{FOLDER}"), (path.name, needed_ours)


def test_our_code_runs_on_the_systems_of_2021(unpacked: pathlib.Path) -> None:
    """glibc 2.34 and GCC 11's libstdc++, which RHEL 9 has; Debian 12's compiler would use newer ones by default."""
    if platform.libc_ver()[1] not in ("2.35", "2.36"):
        pytest.skip(f"built with glibc {platform.libc_ver()[1]}: the tag says what it needs; Debian 12 makes the wheel for all")
    for path in elf_files(unpacked):
        versions = set(re.findall(rb"(GLIBC|GLIBCXX)_([\d.]+)\0", path.read_bytes()))
        assert not [v for kind, v in versions if kind == b"GLIBC" and tuple(map(int, v.split(b"."))) > (2, 34)], path.name
        assert not [v for kind, v in versions if kind == b"GLIBCXX" and tuple(map(int, v.split(b"."))) > (3, 4, 29)], path.name


# Functions that glibc 2.28 has too, in another library or by another version: libdl, librt, libpthread, __xstat, libm.
IN_2_28 = re.compile(r"dl\w+|shm_\w+|pthread_(?!cond_clockwait)\w+|[fl]?stat(at)?(64)?|log2?|exp|pow|__libc_start_main")
HEADERS_CHOICE = {"pthread_cond_clockwait", "__libc_single_threaded"}  # libstdc++'s headers use them where glibc has them


def test_our_code_could_be_built_for_glibc_2_28(unpacked: pathlib.Path) -> None:
    """The wheel's libraries call no function that RHEL 8's C library lacks."""
    for path in elf_files(unpacked):
        if path.parent.name == "hvdrun":
            continue  # libraries of the system that builds the wheel
        said = subprocess.run(["readelf", "--dyn-syms", "--wide", str(path)], capture_output=True, text=True, timeout=20).stdout
        needed = re.findall(r" UND (\w+)@GLIBC_2\.(\d+)", said)
        assert len(needed) > 3, path.name
        newer = {name for name, minor in needed if int(minor) > 28 and not IN_2_28.fullmatch(name)}
        assert newer <= HEADERS_CHOICE, (path.name, newer)


def test_the_bundled_libzmq_is_the_one_that_is_loaded(native: pathlib.Path, unpacked: pathlib.Path) -> None:
    """The build changes the symbol versions that the bundled libzmq needs. On a loader error hvdrun would silently use the
    system's libzmq."""
    zmq = next(unpacked.rglob("libzmq.so.5"))
    code = f"import ctypes; ctypes.CDLL({str(zmq)!r}, 2).zmq_ctx_new"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_hardening(unpacked: pathlib.Path) -> None:
    for path in elf_files(unpacked):
        if FOLDER in str(path):
            continue
        said = subprocess.run(["readelf", "-lWd", str(path)], capture_output=True, text=True, timeout=20).stdout
        assert "GNU_RELRO" in said and "BIND_NOW" in said, path.name
        assert re.search(r"GNU_STACK.* RW ", said), path.name
        if path.name in ("hvdrun", "hvdrank", "libhvd.so"):
            symbols = subprocess.run(
                ["readelf", "--dyn-syms", "-W", str(path)], capture_output=True, text=True, timeout=20
            ).stdout
            assert "__stack_chk_fail" in symbols and "_chk@" in symbols.replace("__stack_chk_fail@", ""), path.name


def test_size(built: pathlib.Path, unpacked: pathlib.Path) -> None:
    kernels = (unpacked / "hvd/libhvd.so").read_bytes().count(b".nv_fatbin") > 0
    if kernels:
        pytest.skip("with kernels for GPUs: as large as they are many")
    assert built.stat().st_size <= 15e6


def interpreter(version: str) -> str | None:
    """An installed CPython of this version."""
    homes = sorted(pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    return str(homes[-1]) if homes else shutil.which(f"python{version}")


@pytest.mark.parametrize("version", PYTHONS)
def test_the_module_loads_in_every_python(
    version: str, native: pathlib.Path, unpacked: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    program = f"import sys; sys.path.insert(0, {str(unpacked)!r}); import hvd._native as m; print(m.__file__)"
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout.strip().endswith("_native.abi3.so"), done.stderr


def run_the_quickstart(environment: pathlib.Path, folder: pathlib.Path) -> str:
    """Makes train.pkl with the environment's Python and runs it on two ranks, without a usable compiler; returns the output."""
    env, trap = environments.without_compilers(folder)
    python = str(environment / "bin/python")
    environments.bounded([python, str(ROOT / "examples/make_pickle.py"), "train.pkl"], 120, cwd=folder, env=env)
    job = [
        str(environment / "bin/hvdrun"),
        "-np",
        "2",
        "-H",
        "localhost:2",
        "--timeline-filename",
        "timeline.json",
        "train.pkl",
    ]
    output = environments.bounded(job, 240, cwd=folder, env=env)
    assert not trap.exists(), trap.read_text()
    text = (folder / "timeline.json").read_text().rstrip()
    events = json.loads(text if text.endswith(("]", "}")) else text.rstrip(",") + "]")
    assert "ALLREDUCE" in json.dumps(events)
    return output


GROUPS = """
import torch, torch.distributed as dist, hvd.torch
dist.init_process_group("hvd")
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.full((4,), rank + 1.0)
dist.all_reduce(x, async_op=True).wait()
assert x.tolist() == [3.0] * 4
parts = [torch.zeros(2) for _ in range(size)]
dist.all_gather(parts, torch.full((2,), float(rank)))
assert [part.tolist() for part in parts] == [[0.0, 0.0], [1.0, 1.0]]
dist.broadcast(x, 1)
mine = torch.zeros(2)
dist.reduce_scatter_tensor(mine, torch.arange(4.0))
assert mine.tolist() == [[0.0, 2.0], [4.0, 6.0]][rank]
dist.barrier(dist.new_group([0, 1]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
model(torch.full((1, 3), float(rank))).sum().backward()
assert model.module.weight.grad.tolist() == [[0.5] * 3]
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": 0}, {"rank": 1}]
dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
dist.destroy_process_group()
print("all as it should be")
"""


def groups_work(environment: pathlib.Path, folder: pathlib.Path) -> bool:
    """Returns whether torch.distributed works over hvd, on two ranks with the environment's torch."""
    (folder / "groups.py").write_text(GROUPS)
    output = environments.bounded([str(environment / "bin/hvdrun"), "-np", "2", "groups.py"], 240, cwd=folder)
    return output.count("all as it should be") == 2


def accuracy(output: str) -> float:
    """The last percentage that the job printed."""
    found = re.findall(r"(\d+(?:\.\d+)?) ?%", output)
    assert found, output
    return float(found[-1])


@pytest.mark.timeout(600)
def test_current_torch(native: pathlib.Path, tmp_path: pathlib.Path) -> None:
    environment = environments.like_ours()
    environments.install(environment, native)
    assert accuracy(run_the_quickstart(environment, tmp_path)) >= 95
    assert groups_work(environment, tmp_path)


@pytest.mark.timeout(1800)
def test_torch_2_0(native: pathlib.Path, tmp_path: pathlib.Path) -> None:
    python = environments.python_for_old_torch()
    if python is None:
        pytest.skip("torch 2.0.1 has wheels for Python 3.8 to 3.11 only, and none of those is installed")
    requirements = ["torch==2.0.1", "numpy<2", "scikit-learn", "cloudpickle"]
    environment = environments.with_packages("torch-2.0.1", python, requirements)
    environments.install(environment, native)
    assert accuracy(run_the_quickstart(environment, tmp_path)) >= 95
    assert groups_work(environment, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_torch_2_5(native: pathlib.Path, tmp_path: pathlib.Path) -> None:
    python = environments.python_for_old_torch()
    if python is None:
        pytest.skip("torch 2.5.1 has wheels for Python 3.9 to 3.12 only, and none of those is installed")
    requirements = ["torch==2.5.1", "numpy<2.3", "scikit-learn", "cloudpickle"]
    environment = environments.with_packages("torch-2.5.1", python, requirements)
    environments.install(environment, native)
    assert accuracy(run_the_quickstart(environment, tmp_path)) >= 95
    assert groups_work(environment, tmp_path)
