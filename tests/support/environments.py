"""Clean environments for installing the wheel; kept under .cache/venvs, since torch takes minutes to install."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/venvs"
OURS = ("hvd", "horovod", "sparkdl", "hvdrun-*.dist-info", "__editable__*hvdrun*")


def laid_out(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Unpacks a wheel in pip's layout, without pip: programs in bin, libraries in lib/hvdrun, packages in lib/python."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "lib/python")
    (data,) = (folder / "lib/python").glob("*.data")
    (data / "data/lib/hvdrun").rename(folder / "lib/hvdrun")
    (data / "scripts").rename(folder / "bin")
    for program in (folder / "bin").iterdir():
        program.chmod(0o755)


def bounded(argv: list[str], limit_seconds: float, **options: object) -> str:
    """Runs a command to its end; returns its output.  AssertionError with the end of the output if it fails."""
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_seconds,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"exit code {done.returncode} from {' '.join(argv)}\n{done.stdout[-4000:]}"
    return str(done.stdout)


def site_packages(environment: pathlib.Path) -> pathlib.Path:
    """The environment's folder of packages."""
    return next(environment.glob("lib/python3*/site-packages"))


def like_ours() -> pathlib.Path:
    """An environment with .venv's packages except ours, as hard links, since copies would take minutes and gigabytes."""
    environment = CACHE / "torch-current"
    shutil.rmtree(environment, ignore_errors=True)
    bounded([str(ROOT / ".venv/bin/python"), "-m", "venv", "--without-pip", str(environment)], 60)
    target = site_packages(environment)
    shutil.rmtree(target)
    bounded(["cp", "-al", str(site_packages(ROOT / ".venv")), str(target)], 120)
    for pattern in OURS:
        for path in target.glob(pattern):
            shutil.rmtree(path)
    return environment


def python_for_old_torch() -> str | None:
    """A Python for which torch 2.0.1 has wheels: 3.8 to 3.11."""
    names = ["/usr/bin/python3", "python3.11", "python3.10", "python3.9", sys.executable]
    for name in (found for found in map(shutil.which, names) if found):
        version = bounded([name, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"], 20).split()
        if version[0] == "3" and 9 <= int(version[1]) <= 11:
            return str(name)
    return None


def with_packages(name: str, python: str, requirements: list[str]) -> pathlib.Path:
    """An environment made by pip, or a cached one with the same requirements."""
    environment = CACHE / name
    wanted = " ".join([python, *requirements])
    stamp = environment / "made-with"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(environment, ignore_errors=True)
        bounded([python, "-m", "venv", str(environment)], 60)
        bounded([str(environment / "bin/pip"), "install", "--disable-pip-version-check", "-q", *requirements], 1500)
        stamp.write_text(wanted)
    return environment


def install(environment: pathlib.Path, wheel: pathlib.Path) -> None:
    """Installs the wheel without dependencies, replacing an earlier one."""
    pip = [str(ROOT / ".venv/bin/pip"), f"--python={environment / 'bin/python'}", "--disable-pip-version-check"]
    bounded([*pip, "install", "-q", "--no-index", "--no-deps", "--force-reinstall", str(wheel)], 120)


def without_compilers(folder: pathlib.Path) -> tuple[dict[str, str], pathlib.Path]:
    """(an environment in which every compiler is a program that fails, the file that each of them would create)."""
    trap = folder / "compiler-was-called"
    programs = folder / "no-compilers"
    programs.mkdir()
    for name in ("cc", "c++", "gcc", "g++", "clang", "clang++", "mpicc", "mpicxx", "nvcc", "ninja", "make", "cmake", "ld"):
        (programs / name).write_text(f"#!/bin/sh\necho $0 >> {trap}\nexit 1\n")
        (programs / name).chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    old = ":".join(part for part in env["PATH"].split(":") if not part.startswith(str(ROOT)))
    return {**env, "PATH": f"{programs}:{old}", "CC": "cc", "CXX": "c++"}, trap
