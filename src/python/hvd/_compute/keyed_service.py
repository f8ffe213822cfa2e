"""Questions and answers by TCP between processes that share a key.

Both ends prove the key before either parses a byte, by the challenges of multiprocessing.connection.  A message is JSON
of at most MOST_BYTES; nothing is unpickled.  Each connection carries one question and its answer.  Messages are not
encrypted, so they must hold no secrets.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, Callable

__all__ = ["KeyedService", "ask"]

MOST_BYTES = 1 << 16
MOST_STRANGERS = 64  # connections that have not proved the key yet; a new one replaces the oldest
HANDSHAKE_SECONDS = 10.0  # limit of the handshake with the question, and again of sending the answer
_CONNECT_SECONDS = 5.0
_ROUNDS, _PAUSE_SECONDS = 3, 0.3  # ask() tries again, because strangers may have displaced its connection
_LAST_ANSWERS_SECONDS = 5.0

# How a connection ends early.  AssertionError: multiprocessing.connection asserts that the peer sent a challenge.
_ENDS = (OSError, EOFError, AuthenticationError, AssertionError, ValueError)

Address = tuple[str, int]
Message = dict[str, Any]


class KeyedService:
    """Listens on each given address, on a port of its own, and answers callers with the key.

    One thread accepts, and each connection has a thread of its own.  That thread calls `answer`, which may block.
    """

    def __init__(self, name: str, key: bytes, interfaces: Mapping[str, Sequence[str]], answer: Callable[[Message], Message]):
        """interfaces: {interface: [IP address]}.  answer: gives the answer to a question.

        Errors: OSError if no address is free to listen on.
        """
        self._name, self._key, self._answer = name, key, answer
        self._mutex = threading.Lock()  # guards the next two
        self._strangers: dict[int, socket.socket] = {}  # by number of the connection: the oldest is the first
        self._threads: set[threading.Thread] = set()
        self._listeners: list[socket.socket] = []
        self._addresses: dict[str, list[Address]] = {}
        failed: OSError | None = None
        for interface, hosts in interfaces.items():
            for host in hosts:
                try:
                    self._listeners.append(_listener(host))
                except OSError as error:  # the address has just gone
                    failed = error
                    continue
                self._addresses.setdefault(interface, []).append((host, self._listeners[-1].getsockname()[1]))
        if not self._listeners:
            raise failed or OSError(f"{name}: this host has no address to listen on")
        self._wake, self._woken = socket.socketpair()
        self._accepts = threading.Thread(target=self._accept, name=name, daemon=True)
        self._accepts.start()

    def addresses(self) -> dict[str, list[Address]]:
        """{interface: [(IP address, port)]}."""
        return {interface: list(addresses) for interface, addresses in self._addresses.items()}

    def close(self) -> None:
        """Accepts no further connection, and gives answers in progress a few seconds.  Harmless when repeated."""
        self._wake.close()
        self._accepts.join()
        end = time.monotonic() + _LAST_ANSWERS_SECONDS
        with self._mutex:
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _accept(self) -> None:
        number = 0
        with selectors.DefaultSelector() as ready:
            for listener in (*self._listeners, self._woken):
                ready.register(listener, selectors.EVENT_READ)
            while True:
                keys = [key.fileobj for key, _ in ready.select()]
                if self._woken in keys:
                    break
                for key in keys:
                    number += 1
                    self._begin(number, key)  # type: ignore[arg-type]
        for listener in (*self._listeners, self._woken):
            listener.close()

    def _begin(self, number: int, listener: socket.socket) -> None:
        """Accepts one connection, and gives it a thread."""
        try:
            link, _ = listener.accept()
        except OSError:  # the caller has gone, or this process has no descriptors left
            time.sleep(0.01)
            return
        thread = threading.Thread(target=self._serve, args=(number, link), name=f"{self._name} {number}", daemon=True)
        with self._mutex:
            if len(self._strangers) >= MOST_STRANGERS:
                _end(self._strangers.pop(next(iter(self._strangers))))
            self._strangers[number] = link
            self._threads.add(thread)
        thread.start()

    def _serve(self, number: int, link: socket.socket) -> None:
        with link, contextlib.suppress(*_ENDS), _connection(link) as connection:
            try:
                with _time_limit(link, HANDSHAKE_SECONDS):
                    deliver_challenge(connection, self._key)
                    answer_challenge(connection, self._key)
                    question = _received(connection)
            finally:
                with self._mutex:
                    self._strangers.pop(number, None)
            answer = self._answer(question)
            with _time_limit(link, HANDSHAKE_SECONDS):
                _send(connection, answer)
        with self._mutex:
            self._threads.discard(threading.current_thread())


def ask(addresses: Sequence[Address], key: bytes, question: Message, seconds: float | None) -> tuple[Message, Address, str]:
    """Sends a question.  Returns the answer, the address that answered, and this host's own address on that connection.

    addresses: tried in turn.  seconds: limit of the answer; None: waits as long as the service lives.
    Errors: ConnectionError with the reason of each address; TimeoutError.
    """
    reasons: dict[Address, str] = {}
    for attempt in range(_ROUNDS):
        time.sleep(_PAUSE_SECONDS if attempt else 0)
        for address in addresses:
            try:
                link = socket.create_connection(address, _CONNECT_SECONDS)
            except OSError as error:
                reasons[address] = error.strerror or str(error)
                continue
            with link, _connection(link) as connection:
                try:
                    with _time_limit(link, HANDSHAKE_SECONDS):
                        answer_challenge(connection, key)
                        deliver_challenge(connection, key)
                        _send(connection, question)
                except AuthenticationError:
                    reasons[address] = "another key"
                    continue
                except (OSError, EOFError, AssertionError):
                    reasons[address] = "no proof of the key"
                    continue
                return _answer_of(link, connection, address, seconds), address, link.getsockname()[0]
    raise ConnectionError("; ".join(f"{host}:{port}: {reason}" for (host, port), reason in reasons.items()) or "no address")


def _answer_of(link: socket.socket, connection: Connection, address: Address, seconds: float | None) -> Message:
    where = "{}:{}".format(*address)
    try:
        with _time_limit(link, seconds) as late:
            return _received(connection)
    except (OSError, EOFError, ValueError):
        if late.is_set():
            raise TimeoutError(f"{where}: no answer in {seconds:g} s") from None
        raise ConnectionError(f"{where}: the service has ended without an answer") from None


def _listener(host: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.bind((host, 0))
        listener.listen(128)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _connection(link: socket.socket) -> Iterator[Connection]:
    """Messages on that socket.  The kernel notices within a minute or so that the other host is gone."""
    link.setblocking(True)
    for option, value in (("KEEPIDLE", 30), ("KEEPINTVL", 10), ("KEEPCNT", 4)):
        link.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_" + option), value)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with Connection(os.dup(link.fileno())) as connection:
        yield connection


@contextlib.contextmanager
def _time_limit(link: socket.socket, seconds: float | None) -> Iterator[threading.Event]:
    """Ends the connection after that time, however many bytes have come.  The event tells that it did."""
    late = threading.Event()
    if seconds is None:
        yield late
        return

    def end() -> None:
        late.set()
        _end(link)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _end(link: socket.socket) -> None:
    """Shuts the connection down, so that a thread blocked on it wakes."""
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


def _send(connection: Connection, message: Message) -> None:
    connection.send_bytes(json.dumps(message).encode())


def _received(connection: Connection) -> Message:
    """ValueError for anything but an object of JSON."""
    message = json.loads(connection.recv_bytes(MOST_BYTES))
    if not isinstance(message, dict):
        raise ValueError("not an object")
    return message
