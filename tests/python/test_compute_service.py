"""The meeting of a compute job and a training job, its configuration file, and strangers at its port.  No TensorFlow."""

from __future__ import annotations

import os
import pathlib
import pickle
import re
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hvd._compute import job, keyed_service
from hvd._compute.config import TfDataServiceConfig
from hvd._compute.interface_addresses import LOOPBACK, addresses_by_interface
from hvd._compute.job import parse, stop_server, workers_of_each
from hvd._compute.service import ComputeClient, ComputeService
from hvd._compute.time_limit import TimeoutException
from hvd._job.own_folder import RefusedPath
from support import hvdrun

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
AT = "grpc://localhost:1234"


@pytest.fixture
def service() -> Iterator[ComputeService]:
    made = ComputeService(2, 2, KEY, [LOOPBACK])
    yield made
    made.shutdown()


@pytest.fixture
def client(service: ComputeService) -> ComputeClient:
    return ComputeClient(service.addresses(), KEY)


def port_of(service: ComputeService) -> tuple[str, int]:
    return service.addresses()[LOOPBACK][0]


def waiting(function: Any, *args: Any) -> tuple[threading.Thread, list[Any]]:
    """Calls the function in a thread; its result comes into the list."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function(*args)), daemon=True)
    thread.start()
    return thread, results


def config(**changes: Any) -> TfDataServiceConfig:
    fields: dict[str, Any] = {
        "dispatchers": 1,
        "workers_per_dispatcher": 2,
        "dispatcher_side": "compute",
        "addresses": {"eth0": [("10.0.0.1", 4000)], "lo": [("127.0.0.1", 4001), ("::1", 4002)]},
        "key": KEY,
        "timeout": 7,
    }
    return TfDataServiceConfig(**{**fields, **changes})


# ---- the meeting


def test_both_jobs_meet(client: ComputeClient) -> None:
    at_shutdown, _ = waiting(client.wait_for_shutdown)
    found, address = waiting(client.wait_for_dispatcher_registration, 1, 10)
    ready, _ = waiting(client.wait_for_dispatcher_worker_registration, 1, 10)
    client.register_dispatcher(1, AT)
    client.register_dispatcher(1, AT)  # repeated: the same
    found.join(10)
    assert address == [AT]
    for _ in range(2):
        client.register_worker_for_dispatcher(1, 2)  # counts once
    with pytest.raises(TimeoutException):
        client.wait_for_dispatcher_worker_registration(0, 0)  # the other dispatcher has none
    with pytest.raises(TimeoutException):
        client.wait_for_dispatcher_worker_registration(1, 0)
    client.register_worker_for_dispatcher(1, 3)
    ready.join(10)
    assert not ready.is_alive() and at_shutdown.is_alive()
    client.shutdown()
    at_shutdown.join(10)
    assert not at_shutdown.is_alive()
    with pytest.raises(ConnectionError, match="whether the compute job runs"):
        client.register_dispatcher(0, AT)


def test_what_does_not_come_is_named(client: ComputeClient) -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutException, match=r"^dispatcher 0 did not come: look at the output .* Timeout after 0.2 seconds"):
        client.wait_for_dispatcher_registration(0, 0.2)
    with pytest.raises(
        TimeoutException, match=r"^2 workers of dispatcher 0 did not come: .*compute job.* Timeout after 0.2 sec"
    ):
        client.wait_for_dispatcher_worker_registration(0, 0.2)
    assert time.monotonic() - started < hvdrun.within(5)


def test_refused_numbers(client: ComputeClient) -> None:
    calls = (
        lambda number: client.register_dispatcher(number, AT),
        lambda number: client.wait_for_dispatcher_registration(number, 1),
        lambda number: client.register_worker_for_dispatcher(number, 0),
        lambda number: client.wait_for_dispatcher_worker_registration(number, 1),
    )
    for number in (-1, 2):
        for call in calls:
            with pytest.raises(IndexError, match=rf"no dispatcher {number}: .* 0 to 1"):
                call(number)
    client.register_dispatcher(0, AT)
    with pytest.raises(ValueError, match=f"{AT} already"):
        client.register_dispatcher(0, AT + "5")
    with pytest.raises(ValueError, match="timeout is nan"):
        client.wait_for_dispatcher_registration(0, float("nan"))
    for numbers in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            ComputeService(*numbers, KEY)
    with pytest.raises(ValueError, match="no network interface nowhere"):
        ComputeService(1, 1, KEY, ["nowhere"])
    with pytest.raises(ValueError, match="key is empty"):
        ComputeService(1, 1, b"")


def test_where_it_listens(service: ComputeService, client: ComputeClient) -> None:
    """On the named interface only; by default not on the loopback one."""
    assert set(service.addresses()) == {LOOPBACK} and client.own_host() is None
    outside = {host for name, hosts in addresses_by_interface().items() if name != LOOPBACK for host in hosts}
    if not outside:
        pytest.skip("this machine has no other interface")
    for host in outside:
        for _, port in service.addresses()[LOOPBACK]:
            with pytest.raises(OSError):
                socket.create_connection((host, port), 5)
    other = ComputeService(1, 1, KEY)
    assert LOOPBACK not in other.addresses()
    assert ComputeClient(other.addresses(), KEY).own_host() in outside
    other.shutdown()


# ---- strangers


def test_another_key(service: ComputeService, client: ComputeClient) -> None:
    with pytest.raises(ConnectionError, match=r"another key.*whether the compute job runs"):
        ComputeClient(service.addresses(), OTHER_KEY)
    client.register_dispatcher(0, AT)


def test_an_impostor_does_not_get_the_question() -> None:
    """A stranger that listens on the service's port gets no request, and the client raises an error."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heard: list[bytes] = []

        def play() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                link.sendall(struct.pack("!i", 9) + b"#WELCOME#")
                heard.append(link.recv(1000))
                link.close()

        threading.Thread(target=play, daemon=True).start()
        with pytest.raises(ConnectionError, match="no proof of the key"):
            ComputeClient({LOOPBACK: [listener.getsockname()]}, KEY)
        listener.shutdown(socket.SHUT_RDWR)
    assert b"".join(heard) == b""


def test_silent_connections_block_nobody(service: ComputeService, client: ComputeClient) -> None:
    before = threading.active_count()
    silent = [socket.create_connection(port_of(service), 5) for _ in range(3 * keyed_service.MOST_STRANGERS)]
    started = time.monotonic()
    for _ in range(5):
        client.register_dispatcher(0, AT)
    assert time.monotonic() - started < min(hvdrun.within(2), keyed_service.HANDSHAKE_SECONDS)
    assert threading.active_count() - before <= 2 * keyed_service.MOST_STRANGERS + 4  # each with its timer
    for link in silent:
        link.close()


def test_a_slow_stranger_is_disconnected(
    service: ComputeService, client: ComputeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit applies to the whole handshake. Single bytes do not extend it."""
    monkeypatch.setattr(keyed_service, "HANDSHAKE_SECONDS", 0.5)
    link = socket.create_connection(port_of(service), 5)
    started = time.monotonic()
    with pytest.raises(OSError):
        while time.monotonic() - started < 20:
            link.sendall(b"\0")
            time.sleep(0.05)
    assert time.monotonic() - started < hvdrun.within(5)
    link.close()
    monkeypatch.undo()
    client.register_dispatcher(0, AT)


class Trap:
    """A pickle that makes a file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_garbage_is_not_interpreted(service: ComputeService, client: ComputeClient, tmp_path: pathlib.Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "made"))
    for data in (
        trap,
        struct.pack("!i", len(trap)) + trap,
        struct.pack("!iQ", -1, 1 << 62) + bytes(1000),
        struct.pack("!i", -5),
        b"GET / HTTP/1.0\r\n\r\n",
        os.urandom(100_000),
    ):
        with socket.create_connection(port_of(service), 5) as link:
            try:
                link.sendall(data)
                link.settimeout(20)
                while link.recv(4096):
                    pass
            except ConnectionError:
                pass  # it closes before it has read all
    client.register_dispatcher(0, AT)
    assert not (tmp_path / "made").exists()


def test_questions_of_another_version(service: ComputeService) -> None:
    """The key is right: the answer is an error, and the service goes on."""
    for question, said in (({"ask": "dance"}, "one version of hvdrun"), ({"ask": "register_worker"}, "missing")):
        answer, _, _ = keyed_service.ask([port_of(service)], KEY, question, 10)
        assert said in answer["text"]
    with pytest.raises(ConnectionError, match="without an answer"):
        keyed_service.ask([port_of(service)], KEY, {"ask": "x" * keyed_service.MOST_BYTES}, 10)
    ComputeClient(service.addresses(), KEY).register_dispatcher(0, AT)


# ---- the configuration


def test_as_a_dictionary() -> None:
    assert TfDataServiceConfig.from_dict(config().to_dict()) == config()
    assert KEY.hex() not in repr(config()) and repr(KEY) not in repr(config())
    without = {name: value for name, value in config().to_dict().items() if name != "timeout"}
    assert TfDataServiceConfig.from_dict(without).timeout == 60
    with pytest.raises(ValueError, match="no configuration of a data service"):
        TfDataServiceConfig.from_dict({"dispatchers": 1})
    for changes in ({"dispatchers": 0}, {"workers_per_dispatcher": -1}, {"timeout": 0}, {"dispatcher_side": "both"}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            config(**changes)


def test_the_file_is_its_owners(tmp_path: pathlib.Path) -> None:
    path, precious = tmp_path / "data.json", tmp_path / "precious"
    precious.write_text("mine")
    path.symlink_to(precious)
    old = os.umask(0)
    try:
        config().write(str(path))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600 and stat.S_ISREG(path.lstat().st_mode)
    assert precious.read_text() == "mine" and len(list(tmp_path.iterdir())) == 2
    assert TfDataServiceConfig.read(str(path)) == config()
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(RefusedPath, match="link"):
        TfDataServiceConfig.read(str(tmp_path / "link"))
    path.chmod(0o622)
    with pytest.raises(RefusedPath, match="written by other users"):
        TfDataServiceConfig.read(str(path))
    path.chmod(0o600)
    path.write_text("{]")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        TfDataServiceConfig.read(str(path), wait_for_file_creation=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        config().write(str(tmp_path / "folder"))
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_waiting_for_the_file(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "data.json")
    with pytest.raises(FileNotFoundError):
        TfDataServiceConfig.read(path)
    with pytest.raises(TimeoutException, match=r"data.json did not come in 0.1 s: start the compute job"):
        TfDataServiceConfig.read(path, wait_for_file_creation=True, timeout=0.1)
    reads, found = waiting(TfDataServiceConfig.read, path, True)
    config().write(path)
    reads.join(10)
    assert found == [config()]


def test_a_compute_job_that_has_ended() -> None:
    """The file of an ended compute job still exists. The error says that the compute job may have ended."""
    gone = ComputeService(1, 1, KEY, [LOOPBACK])
    addresses = gone.addresses()
    gone.shutdown()
    with pytest.raises(ConnectionError, match=r"refused.*its own host only.*--network-interfaces.*compute job runs"):
        config(addresses=addresses).compute_client()


# ---- the commands' arguments


def test_arguments() -> None:
    given = parse("compute_worker", ["data.json"])
    assert vars(given) == {"configfile": "data.json", "dispatchers": 1, "dispatcher_side": "compute", "timeout": 60}
    assert (workers_of_each(4, 1), workers_of_each(4, 2), workers_of_each(4, 4)) == (4, 2, 1)
    for dispatchers in (0, -1, 3, 8):
        with pytest.raises(ValueError, match=f"4 processes cannot be shared among {dispatchers} dispatchers"):
            workers_of_each(4, dispatchers)


class Server:
    """A stand-in for TensorFlow's server: stop() waits until all readers are gone."""

    def __init__(self, has_readers: bool) -> None:
        self.has_stopped, self.gone = threading.Event(), threading.Event()
        if not has_readers:
            self.gone.set()

    def _stop(self) -> None:
        self.gone.wait()
        self.has_stopped.set()

    def join(self) -> None:
        assert self.has_stopped.is_set()


def test_a_server_whose_readers_stay_does_not_hold_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job, "STOP_SECONDS", 0.2)
    stuck = Server(has_readers=True)
    stop_server(stuck)
    assert not stuck.has_stopped.is_set() and "a Server still has readers after 0.2 s" in caplog.text
    stuck.gone.set()
    monkeypatch.undo()
    idle = Server(has_readers=False)
    stop_server(idle)
    assert idle.has_stopped.is_set()
