"""The common part of compute jobs: the arguments of their commands, their numbers, the service, the end of their
servers."""

from __future__ import annotations

import argparse
import logging
import secrets
import threading
from collections.abc import Sequence
from typing import Any

from hvd._compute.config import SIDES, TfDataServiceConfig
from hvd._compute.service import ComputeService

__all__ = ["parse", "start_service", "stop_server", "workers_of_each"]

_log = logging.getLogger("hvd.compute_job")
_KEY_BYTES = 32
STOP_SECONDS = 5.0


def parse(program: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """configfile, dispatchers, dispatcher_side and timeout."""
    parser = argparse.ArgumentParser(prog=program, description="Runs the workers of tf.data's service for a training job.")
    parser.add_argument("configfile", metavar="FILE", help="gets the configuration, with the key; the training job reads it")
    parser.add_argument(
        "--dispatchers", type=int, default=1, metavar="N", help="1 for all ranks of the training, or one for each (default: 1)"
    )
    parser.add_argument("--dispatcher-side", choices=SIDES, default="compute", help="the job that runs the dispatchers")
    parser.add_argument("--timeout", type=int, default=60, metavar="S", help="seconds to wait for each other (default: 60)")
    return parser.parse_args(arguments)


def workers_of_each(workers: int, dispatchers: int) -> int:
    """The number of workers of each dispatcher.  Errors: ValueError if they do not share evenly."""
    if dispatchers < 1 or workers % dispatchers:
        raise ValueError(
            f"{workers} processes cannot be shared among {dispatchers} dispatchers: start a multiple of --dispatchers processes"
        )
    return workers // dispatchers


def start_service(
    workers: int, dispatchers: int, side: str, timeout: int, nics: Sequence[str] | None
) -> tuple[ComputeService, TfDataServiceConfig]:
    """Starts the service with a new key.  Returns it and its configuration.  The caller shuts the service down.

    nics: network interfaces to listen on; None: all but the loopback interface.
    """
    each = workers_of_each(workers, dispatchers)
    key = secrets.token_bytes(_KEY_BYTES)
    service = ComputeService(dispatchers, each, key, nics)
    try:
        return service, TfDataServiceConfig(dispatchers, each, side, service.addresses(), key, timeout)
    except BaseException:
        service.shutdown()
        raise


def stop_server(server: Any) -> None:
    """Stops a dispatcher or a worker of tf.data's service.  Gives up after STOP_SECONDS, with a warning.

    TensorFlow waits for calls in progress.  A reader may make a call that never ends: it asks for elements until the
    reader is gone.
    """
    stop = threading.Thread(target=_stop, args=(server,), name="hvd-stop-server", daemon=True)  # keeps the server alive
    stop.start()
    stop.join(STOP_SECONDS)
    if stop.is_alive():
        _log.warning("a %s still has readers after %g s: it ends with this process", type(server).__name__, STOP_SECONDS)


def _stop(server: Any) -> None:
    getattr(server, "stop", server._stop)()  # older ones have no stop()
    server.join()
