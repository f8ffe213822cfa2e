"""What the commands that start a compute job share: their arguments, their numbers, the service with its configuration."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence

from hvd._compute_service import ComputeService
from hvd._data_service_config import SIDES, TfDataServiceConfig

__all__ = ["parse", "start_service", "workers_of_each"]

_KEY_BYTES = 32


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
    """The service, with a key of its own, and its configuration.  The caller shuts the service down.

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
