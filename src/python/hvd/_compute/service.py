"""The meeting of a compute job and a training job: dispatchers and workers register, both jobs wait for them.

No framework's name is here.  keyed_service.py carries the questions.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from hvd._compute.interface_addresses import addresses_by_interface
from hvd._compute.keyed_service import Address, KeyedService, Message, ask
from hvd._compute.time_limit import Timeout, TimeoutException

__all__ = ["ComputeClient", "ComputeService"]

_log = logging.getLogger("hvd.compute_service")
_ANSWER_SECONDS = 20.0  # in addition to the time that the service waits
_LONGEST_WAIT_SECONDS = 1e6
_ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (IndexError, TypeError, ValueError, TimeoutException)}


class ComputeService:
    """Runs in one process of the compute job.  Any thread."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Sequence[str] | None = None) -> None:
        """key: a caller with this key may ask.  nics: network interfaces to listen on; None: all but the loopback
        interface.

        Errors: ValueError for a number below 1, an unknown interface or an empty key; OSError.
        """
        if dispatchers < 1:
            raise ValueError(f"dispatchers is {dispatchers}: the compute service needs at least 1")
        if workers_per_dispatcher < 1:
            raise ValueError(f"workers_per_dispatcher is {workers_per_dispatcher}: a dispatcher needs at least 1")
        if not key:
            raise ValueError("the key is empty: horovod.runner.common.util.secret.make_secret_key() makes one")
        self._workers_per_dispatcher = workers_per_dispatcher
        self._addresses: list[str | None] = [None] * dispatchers
        self._workers: list[set[int]] = [set() for _ in range(dispatchers)]
        self._is_shut_down = False
        self._changed = threading.Condition()  # guards the three above
        self._service = KeyedService("hvd-compute-service", key, addresses_by_interface(nics), self._answer)

    def addresses(self) -> dict[str, list[Address]]:
        """{network interface: [(IP address, port)]}, for ComputeClient."""
        return self._service.addresses()

    def shutdown(self) -> None:
        """Ends every wait_for_shutdown(), then stops to listen.  Harmless when repeated."""
        with self._changed:
            self._is_shut_down = True
            self._changed.notify_all()
        self._service.close()

    def _answer(self, question: Message) -> Message:
        methods: dict[str, Callable[..., Any]] = {
            "register_dispatcher": self._register_dispatcher,
            "wait_for_dispatcher": self._wait_for_dispatcher,
            "register_worker": self._register_worker,
            "wait_for_workers": self._wait_for_workers,
            "shutdown": self._begin_shutdown,
            "wait_for_shutdown": self._wait_for_shutdown,
            "probe": lambda: None,
        }
        try:
            kind = question.pop("ask", None)
            if kind not in methods:
                raise ValueError(
                    f"the compute service does not know the question {kind!r}: both jobs need one version of hvdrun"
                )
            with self._changed:
                return {"value": methods[kind](**question)}
        except tuple(_ERRORS.values()) as error:
            return {"error": type(error).__name__, "text": str(error)}

    # Each of these is called with the condition held.

    def _checked(self, dispatcher: int) -> int:
        last = len(self._addresses) - 1
        if not isinstance(dispatcher, int) or not 0 <= dispatcher <= last:
            raise IndexError(f"there is no dispatcher {dispatcher}: the compute job was started for dispatchers 0 to {last}")
        return dispatcher

    def _wait(self, is_there: Callable[[], Any], seconds: float, what: str, advice: str) -> None:
        _check_limit(seconds)
        limit = Timeout(seconds, f"{{activity}} did not come: {advice}")
        while not is_there():
            limit.check_time_out_for(what)
            self._changed.wait(limit.remaining())

    def _register_dispatcher(self, dispatcher: int, address: str) -> None:
        known = self._addresses[self._checked(dispatcher)]
        if known not in (None, address):
            raise ValueError(
                f"dispatcher {dispatcher} is at {known} already, and cannot be at {address} too: one job each uses it"
            )
        self._addresses[dispatcher] = str(address)
        self._changed.notify_all()

    def _wait_for_dispatcher(self, dispatcher: int, timeout: float) -> str | None:
        self._checked(dispatcher)
        self._wait(
            lambda: self._addresses[dispatcher],
            timeout,
            f"dispatcher {dispatcher}",
            "look at the output of the job that has the dispatchers (dispatcher_side), or give a longer timeout",
        )
        return self._addresses[dispatcher]

    def _register_worker(self, dispatcher: int, worker: int) -> None:
        self._workers[self._checked(dispatcher)].add(int(worker))
        self._changed.notify_all()

    def _wait_for_workers(self, dispatcher: int, timeout: float) -> None:
        there, wanted = self._workers[self._checked(dispatcher)], self._workers_per_dispatcher
        limit_advice = "look at the output of the compute job, or give a longer timeout"
        self._wait(lambda: len(there) >= wanted, timeout, f"{wanted} workers of dispatcher {dispatcher}", limit_advice)

    def _begin_shutdown(self) -> None:
        threading.Thread(target=self.shutdown, name="hvd-compute-service-end", daemon=True).start()

    def _wait_for_shutdown(self) -> None:
        self._changed.wait_for(lambda: self._is_shut_down)


def _check_limit(seconds: float) -> None:
    if not 0.0 <= seconds <= _LONGEST_WAIT_SECONDS:
        raise ValueError(f"timeout is {seconds}: write seconds, 0 to {_LONGEST_WAIT_SECONDS:g}")


class ComputeClient:
    """Asks the compute service.  Any thread; each question has a connection of its own.

    Errors of all methods: ConnectionError, TimeoutError; IndexError for a dispatcher that does not exist.
    """

    def __init__(self, compute_addresses: Mapping[str, Sequence[Address]], key: bytes, verbose: int = 1) -> None:
        """compute_addresses: the result of the service's addresses().  verbose: 2 and more log the address that
        answers."""
        self._key = key
        self._addresses = [(str(host), int(port)) for found in compute_addresses.values() for host, port in found]
        _, address, self._own_host = self._exchange("probe", _ANSWER_SECONDS)
        self._addresses = [address]
        if verbose > 1:
            _log.info("the compute service answers at %s:%d", *address)

    def own_host(self) -> str | None:
        """Returns this host's address on the connection to the service.  None: the service runs on this host, and accepts only
        local connections."""
        return None if ipaddress.ip_address(self._own_host).is_loopback else self._own_host

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Tells where that dispatcher is.  ValueError: it is known at another address."""
        self._ask("register_dispatcher", dispatcher=dispatcher_id, address=dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """The dispatcher's address.  TimeoutException if it does not come within timeout seconds."""
        return str(self._ask("wait_for_dispatcher", timeout, dispatcher=dispatcher_id, timeout=timeout))

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Tells that this worker of the dispatcher runs."""
        self._ask("register_worker", dispatcher=dispatcher_id, worker=worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Waits for all workers of the dispatcher.  TimeoutException if they do not come within timeout seconds."""
        self._ask("wait_for_workers", timeout, dispatcher=dispatcher_id, timeout=timeout)

    def shutdown(self) -> None:
        """Ends the compute service, and with it the compute job."""
        self._ask("shutdown")

    def wait_for_shutdown(self) -> None:
        """Waits as long as the service lives.  ConnectionError if it ends without a shutdown()."""
        self._ask("wait_for_shutdown", None)

    def _ask(self, kind: str, seconds: float | None = 0.0, **question: Any) -> Any:
        """seconds: how long the service itself may wait; None: without a limit."""
        if seconds is not None:
            _check_limit(seconds)
        answer, _, _ = self._exchange(kind, None if seconds is None else seconds + _ANSWER_SECONDS, **question)
        if "error" in answer:
            raise _ERRORS.get(str(answer["error"]), RuntimeError)(str(answer.get("text")))
        return answer.get("value")

    def _exchange(self, kind: str, seconds: float | None, **question: Any) -> tuple[Message, Address, str]:
        try:
            return ask(self._addresses, self._key, {"ask": kind, **question}, seconds)
        except ConnectionError as error:
            raise ConnectionError(f"the compute service does not answer ({error}). {self._advice()}") from None

    def _advice(self) -> str:
        if all(ipaddress.ip_address(host).is_loopback for host, _ in self._addresses):
            return (
                "It listens for its own host only. If the training runs elsewhere, start the compute job with "
                "--network-interfaces; else see whether the compute job runs, and has written this configuration"
            )
        return "See whether the compute job runs, and has written this configuration: an older one's file stays behind"
