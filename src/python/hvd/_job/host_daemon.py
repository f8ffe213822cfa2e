"""Runs hvdrun's daemon on a host, inside a cluster's process: a Spark task or a Ray actor."""

from __future__ import annotations

import os
import re
import socket
import subprocess

from hvd._job.run import hvdrun_program, ranks_environment
from hvd._runtime import environment as _environment

__all__ = ["clean_environment", "run_daemon", "travelling_environment"]

# Secrets of Spark, and Ray's variables that mean only the process that has them.
_NOT_FOR_RANKS = re.compile(
    r"^(_SPARK_AUTH_SECRET|PYTHON_WORKER_FACTORY_.*|.*SPARK.*(SECRET|PASSWORD).*|RAY_(RAYLET|NODE|JOB|WORKER|CLIENT).*|__RAY.*)$"
)
_ONES_OWN = re.compile(
    r"^HVD_(RUN_PROGRAM|RANK_PROGRAM|LIBRARY|BUILD_DIR|RANK|SIZE|LOCAL_.*|CROSS_.*|JOB.*|HOST.*|LINK_FD|CONTROL|.*KEYS?|TEST_.*)$"
)
_TRAVELS = re.compile(r"^(HOROVOD|HVD|NCCL|UCX)_")


def travelling_environment() -> dict[str, str]:
    """The driver's variables that configure a job and mean the same on every machine."""
    return {name: value for name, value in _environment.whole.items() if _TRAVELS.match(name) and not _ONES_OWN.match(name)}


def clean_environment() -> dict[str, str]:
    """Returns this process's environment without the variables of the cluster's manager."""
    return {name: value for name, value in _environment.whole.items() if not _NOT_FOR_RANKS.match(name)}


def run_daemon(script: str, gpus: list[str] | None) -> str:
    """Runs the daemon of this host, with these GPUs, until the job has ended.  Returns the failure, if any."""
    environment = clean_environment()
    environment["HVD_HOST_SET_PYTHONPATH"] = ranks_environment()["PYTHONPATH"]  # the cluster's folders differ between hosts
    environment["HVD_HOST_CWD"] = os.getcwd()
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    process = subprocess.Popen(
        [hvdrun_program(), "--host-shell", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(script.encode())
    except BaseException:
        process.terminate()
        process.wait()
        raise
    last = "\n".join(said.decode(errors="replace").strip().splitlines()[-5:])
    if process.returncode in (126, 127):
        raise RuntimeError(f"the host daemon cannot start on {socket.gethostname()}: {last}")
    return f"its daemon ended with code {process.returncode}: {last}" if process.returncode else ""
