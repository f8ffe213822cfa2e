"""Drivers and clusters of real Ray for the tests."""

from __future__ import annotations

import os
import pathlib

from spark.session import Driver

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def python() -> str | None:
    """The interpreter with Ray: HVD_TEST_RAY."""
    named = os.environ.get("HVD_TEST_RAY", "")
    return named if named and os.access(named, os.X_OK) else None


def why_not() -> str | None:
    """None if Ray is there, else the reason."""
    return None if python() else "Ray is not there (HVD_TEST_RAY names a Python that has it)"


def environment() -> dict[str, str]:
    """For drivers and nodes: our build, that Python, no reports to anybody."""
    build = pathlib.Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build"))
    folders = (
        build / "launcher",
        pathlib.Path(str(python())).parent,
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
        "/usr/sbin",
        "/sbin",
    )
    return {
        "PATH": ":".join(map(str, folders)),
        "HOME": os.environ.get("HOME", "/root"),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(build / "src/python"),
        "HVD_SHARE_GPUS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_worker_niceness": "0",  # 15 by default: on a busy machine ranks would take minutes
        # Nodes of these tests die at once; Ray waits longer for a node by default.
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_failure_threshold": "5",
    }


def driver(folder: pathlib.Path, *address: str) -> Driver:
    """A driver; without an address, with a cluster of two nodes."""
    return Driver([str(python()), str(HERE / "driver.py"), *address], folder / f"driver{len(address)}.log", environment())
