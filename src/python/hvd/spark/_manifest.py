"""The cluster in the format of hvdrun-manifest(5)."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from hvd._job.agents import manifest, natural


def host_of(address: str) -> str:
    """The host of "host:port", an IPv6 address in brackets or not."""
    host = address.rsplit(":", 1)[0] if ":" in address else address
    return host.strip("[]")


def by_host(addresses: Iterable[str]) -> dict[str, list[int]]:
    """Host → its tasks, hosts and tasks in the order of the tasks."""
    hosts: dict[str, list[int]] = {}
    for task, address in enumerate(addresses):
        hosts.setdefault(host_of(address), []).append(task)
    return hosts


def write_manifest(path: str | os.PathLike[str], spark: Any = None) -> dict[str, Any]:
    """Writes the running executors as a manifest for `hvdrun --manifest PATH`, and returns it.

    slots: the number of tasks that run at once on the host.  hvdrun then reaches the hosts by ssh, since no Spark task waits
    there.  Errors: RuntimeError without a session or without executors; OSError for the file.
    """
    from hvd.spark._session import refuse_unfit, slots, spark_context

    context = spark_context(spark)
    refuse_unfit(context)
    count = slots(context)
    if count < 1:
        raise RuntimeError("the application has no executors yet: run something first, or wait a moment")
    found = context.parallelize(range(count), count).barrier().mapPartitions(_about).collect()
    addresses = found[0][0]
    tasks = by_host(addresses)
    gpus = {host: natural({gpu for task in own for gpu in found[task][1]}) for host, own in tasks.items()}
    made = manifest("spark", context.applicationId, {host: len(own) for host, own in tasks.items()}, gpus)
    write_own(os.fspath(path), json.dumps(made, indent=2) + "\n")
    return made


def write_own(path: str, text: str) -> None:
    """Writes a file that all users can read, and replaces an existing one.  Follows the user's own link, not another user's.

    Errors: OSError; PermissionError if another user's file has that name in a folder that is open to all.
    """
    if os.path.islink(path) and os.lstat(path).st_uid == os.geteuid():
        path = os.path.realpath(path)
    number, fresh = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=f"{os.path.basename(path)}.")
    try:
        with open(number, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise


def _about(_rows: Any) -> Iterator[tuple[list[str], list[str], str]]:
    """Runs in each task.  Yields the addresses of all tasks, and this task's GPUs."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    gpu = context.resources().get("gpu")
    yield [info.address for info in context.getTaskInfos()], list(gpu.addresses) if gpu else [], socket.gethostname()
