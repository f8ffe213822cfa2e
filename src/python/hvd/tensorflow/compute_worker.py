"""A compute job: hvdrun -np 4 python -m horovod.tensorflow.data.compute_worker FILE.

FILE gets the configuration; the training job reads it.  The compute job ends when a process of the training calls
TfDataServiceConfig.read(FILE).compute_client().shutdown().
"""

from __future__ import annotations

import hvd.tensorflow as hvd
from hvd._compute.interface_addresses import LOOPBACK
from hvd._compute.job import parse, start_service, workers_of_each
from hvd._runtime import environment as _environment
from hvd.tensorflow.data_service import compute_worker_fn

__all__ = ["main", "run"]


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Runs on each rank of the compute job.  timeout: seconds that each wait for the other job lasts.

    Errors: ValueError for numbers that do not fit; those of compute_worker_fn().
    """
    hvd.init()
    workers_of_each(hvd.size(), dispatchers)  # raises on all ranks
    service = None
    try:
        config = None
        if hvd.rank() == 0:
            service, config = start_service(hvd.size(), dispatchers, dispatcher_side, timeout, _interfaces())
            config.write(configfile)
        compute_worker_fn(hvd.broadcast_object(config, name="TfDataServiceConfig"))
    finally:
        if service is not None:
            service.shutdown()


def run() -> None:
    """The command line."""
    given = parse("python -m horovod.tensorflow.data.compute_worker", None)
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)


def _interfaces() -> list[str] | None:
    """hvdrun --network-interfaces; else a job on one host listens for that host only."""
    named = _environment.whole.get("GLOO_SOCKET_IFNAME")  # hvdrun sets it to the option's value
    if named:
        return named.split(",")
    return [LOOPBACK] if hvd.cross_size() == 1 else None
