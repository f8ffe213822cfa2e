"""The wheel for CPython without a GIL (scripts/test --nightly threads): jobs with four threads, also under ThreadSanitizer."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

from support import environments

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
JOB = ROOT / "tests/wheel/four_threads.py"
SANITIZED = ROOT / "build/free-threaded-tsan"


def interpreter(program: pathlib.Path) -> pathlib.Path:
    """The program; skips the test without it."""
    if not program.exists():
        pytest.skip("scripts/wheel-free-threaded makes CPython without a GIL")
    return program


@pytest.fixture(scope="module")
def wheel() -> pathlib.Path:
    """The only one."""
    wheels = list((ROOT / "dist/free-threaded").glob("*.whl"))
    if len(wheels) != 1:
        pytest.skip("scripts/wheel-free-threaded makes the wheel")
    return wheels[0]


@pytest.fixture(scope="module")
def environment(wheel: pathlib.Path) -> pathlib.Path:
    """NumPy and the wheel, installed by that CPython's pip."""
    made = environments.with_packages(
        "free-threaded",
        str(interpreter(CACHE / "free-threaded/bin/python3.13t")),
        ["--only-binary=:all:", "numpy", "cloudpickle"],
    )
    environments.bounded([str(made / "bin/pip"), "install", "-q", "--no-deps", "--force-reinstall", str(wheel)], 120)
    return made


def test_the_tag(wheel: pathlib.Path) -> None:
    assert re.fullmatch(r"hvdrun-[\d.]+-cp313-cp313t-manylinux_2_\d+_x86_64\.whl", wheel.name)


def test_no_gil_after_the_import(environment: pathlib.Path) -> None:
    code = "import sys, hvd.numpy; sys.exit(sys._is_gil_enabled())"
    done = subprocess.run([environment / "bin/python", "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("ranks", [1, 3])
def test_four_threads(ranks: int, environment: pathlib.Path) -> None:
    argv: list[str | pathlib.Path] = [
        environment / "bin/hvdrun",
        "-np",
        str(ranks),
        "--python",
        environment / "bin/python",
        JOB,
        "20",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("four threads: ok") == ranks


def sanitized_environment(environment: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """The package of the wheel with the module under ThreadSanitizer in place of its own; `folder` gets a file."""
    if not list(SANITIZED.glob("hvd/_native*.so")):
        pytest.skip("scripts/wheel-free-threaded --thread-sanitizer makes the module")
    (site,) = environment.glob("lib/python3*/site-packages")
    package = SANITIZED / "hvd"
    for path in (site / "hvd").iterdir():
        place = package / path.name
        if not path.name.startswith("_native") and not place.is_symlink():
            place.symlink_to(path)
    cpythons = CACHE / "free-threaded-tsan/source/Tools/tsan/suppressions_free_threading.txt"
    suppressed = folder / "suppressions.txt"
    # libhvd is not built for it: memcpy is seen there, and the atomics that order its calls are not.
    suppressed.write_text(cpythons.read_text() + "\ncalled_from_lib:libhvd.so\n")
    rules = [f"suppressions={suppressed}", "halt_on_error=0", "exitcode=66"]
    paths = f"{SANITIZED}:{site}"
    return {**os.environ, "PYTHONPATH": paths, "HVD_LIBRARY": str(site / "hvd/libhvd.so"), "TSAN_OPTIONS": ":".join(rules)}


def test_four_threads_under_thread_sanitizer(environment: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """No report names a function of hvd's module. libhvd is not built for it: its unit tests have their own run."""
    program = interpreter(CACHE / "free-threaded-tsan/source/python")
    env = sanitized_environment(environment, tmp_path)
    argv: list[str | pathlib.Path] = ["setarch", "-R", program, JOB, "3"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=900)
    assert "four threads: ok" in done.stdout, done.stderr[-4000:]
    ours = [report for report in done.stderr.split("==================") if "ext/native/" in report]
    assert not ours, "\n".join(ours[:3])[:8000]
