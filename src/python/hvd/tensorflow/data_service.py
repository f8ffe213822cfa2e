"""tf.data's service for a training job: a second job, on CPUs, prepares the data.

The processes of the compute job run workers of tf.data's service.  dispatcher_side of the configuration names the job that
runs the dispatchers.  With one dispatcher all ranks of the training use it; with several, rank i uses dispatcher i.
hvd/_compute/service.py is the meeting of both jobs.

    dataset = dataset.send_to_data_service(TfDataServiceConfig.read("data.json", True), hvd.rank(), hvd.size())

TensorFlow's own servers listen on every address, and ask for no key.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator

import tensorflow as tf

import hvd.tensorflow as hvd
from hvd._compute.config import TfDataServiceConfig
from hvd._compute.job import stop_server
from hvd._compute.service import ComputeClient

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

_log = logging.getLogger("hvd.data_service")
_VERBOSE = 2
_HEARTBEAT_MS = 1000
_LOST_SECONDS = 5  # a worker calls a dispatcher that is gone for this long; the compute job's end may wait for such a call
_shared_jobs: dict[bytes, Iterator[int]] = {}  # by key of the configuration: counts the datasets that ranks share


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Gives the address of this rank's dispatcher, once all its workers run.

    dispatcher_side "training": the dispatcher lives on rank 0, or on each rank, until the block ends.  All ranks must have
    read their data by then: end the block with hvd.barrier() if they share one dispatcher.
    Errors: TimeoutException names the missing dispatcher or worker; ConnectionError; IndexError if the rank has no dispatcher.
    """
    client = compute_config.compute_client(verbose=_VERBOSE)
    dispatcher = rank if compute_config.dispatchers > 1 else 0
    here = compute_config.dispatcher_side == "training" and rank == dispatcher
    with _dispatcher(client, dispatcher) if here else contextlib.nullcontext():
        address = client.wait_for_dispatcher_registration(dispatcher, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(dispatcher, compute_config.timeout)
        yield address


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """The dataset as the compute job's workers produce it.  Also a method of tf.data.Dataset.

    reuse_dataset: the ranks of one dispatcher share one pass over the data; otherwise each has all of it.  All ranks
    must then send the same datasets in the same order.  round_robin: the ranks take turns at getting elements.  The
    dataset must then have no end, and size, the number of ranks, is needed.
    Errors: RuntimeError if the dispatchers are in the training job; those of tf_data_service().
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "the dispatchers run in the training job, which must keep them: use `with tf_data_service(config, rank) as …`, "
            "and tf.data.experimental.service.distribute(…, service=…) inside"
        )
    in_turn = reuse_dataset and round_robin
    alone = compute_config.dispatchers > 1  # no other rank reads there, so the other ranks' turns would never come
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name=_shared_name(compute_config) if reuse_dataset else None,
                consumer_index=(0 if alone else rank) if in_turn else None,
                num_consumers=(1 if alone else size) if in_turn else None,
            )
        )


def _shared_name(config: TfDataServiceConfig) -> str:
    """The job name that all ranks share for a dataset.  Each dataset has a new name: a name stands for one pass, which ends."""
    number = next(_shared_jobs.setdefault(config.key, itertools.count()))
    return f"job-{number}" if number else "job"


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Runs one worker, and perhaps its dispatcher, until the compute service is shut down.

    Each rank of a compute job calls it.
    Errors: TimeoutException if the dispatcher does not come; ConnectionError.
    """
    hvd.init()
    dispatcher, place = divmod(hvd.rank(), compute_config.workers_per_dispatcher)
    client = compute_config.compute_client(verbose=_VERBOSE)
    here = compute_config.dispatcher_side == "compute" and place == 0
    with _dispatcher(client, dispatcher) if here else contextlib.nullcontext():
        address = client.wait_for_dispatcher_registration(dispatcher, compute_config.timeout)
        worker = tf.data.experimental.service.WorkerServer(
            tf.data.experimental.service.WorkerConfig(
                dispatcher_address=address.partition("://")[2],
                worker_address=f"{_name_of(client)}:%port%",  # TensorFlow puts in the port
                heartbeat_interval_ms=_HEARTBEAT_MS,
                dispatcher_timeout_ms=int(min(compute_config.timeout, _LOST_SECONDS) * 1000),
            )
        )
        try:
            client.register_worker_for_dispatcher(dispatcher, hvd.rank())
            _log.info("worker %d of dispatcher %d runs", hvd.rank(), dispatcher)
            client.wait_for_shutdown()
        finally:
            stop_server(worker)


@contextlib.contextmanager
def _dispatcher(client: ComputeClient, number: int) -> Iterator[None]:
    """Runs that dispatcher, and registers it."""
    server = tf.data.experimental.service.DispatchServer()
    try:
        protocol, _, place = server.target.partition("://")  # TensorFlow calls every host localhost
        address = f"{protocol}://{_name_of(client)}:{place.rpartition(':')[2]}"
        client.register_dispatcher(number, address)
        _log.info("dispatcher %d runs at %s", number, address)
        yield
    finally:
        stop_server(server)


def _name_of(client: ComputeClient) -> str:
    """The name or address of this host for the other hosts, as written before ":port"."""
    host = client.own_host()
    return "localhost" if host is None else f"[{host}]" if ":" in host else host
