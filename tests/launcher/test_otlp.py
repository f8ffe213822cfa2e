"""The metrics that go to a collector by OpenTelemetry's protocol."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support import hvdrun
from support.late_steps import PACKAGE, argv

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the bodies that are posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.got: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.status = 200


class Answer(http.server.BaseHTTPRequestHandler):
    """A request to the collector."""

    server: Collector

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Prints nothing on standard error."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def env(tmp_path: pathlib.Path, collector: Collector) -> dict[str, str]:
    return {
        "PYTHONPATH": str(PACKAGE),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_address[1]}",
        "no_proxy": "127.0.0.1",
    }


def metrics_in(body: dict[str, Any]) -> dict[str, Any]:
    """The metrics by name."""
    (scope,) = body["resourceMetrics"][0]["scopeMetrics"]
    return {metric["name"]: metric for metric in scope["metrics"]}


def test_steps_and_causes_reach_the_collector(env: dict[str, str], collector: Collector) -> None:
    env |= {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=s%20ecret", "OTEL_RESOURCE_ATTRIBUTES": 'team=a"b,service.name=x'}
    done = hvdrun.run(*argv(), env=env)
    assert done.returncode == 0, done.stderr
    assert "metrics" not in done.stderr
    path, headers, body = collector.got[-1]
    assert path == "/v1/metrics"
    assert headers["api-key"] == "s ecret"
    assert headers["Content-Type"] == "application/json"
    attributes = {a["key"]: a["value"]["stringValue"] for a in body["resourceMetrics"][0]["resource"]["attributes"]}
    assert attributes["service.name"] == "hvdrun"
    assert attributes["team"] == 'a"b'
    assert attributes["hvdrun.job"]
    found = metrics_in(body)
    assert 190 <= found["hvdrun_steps_total"]["sum"]["dataPoints"][0]["asDouble"] <= 200
    assert found["hvdrun_steps_total"]["sum"]["isMonotonic"]
    assert found["hvdrun_step_seconds"]["gauge"]["dataPoints"][0]["asDouble"] >= 0.015
    causes = found["hvdrun_cause_seconds"]["gauge"]["dataPoints"]  # a busy machine may have further causes
    assert any({"key": "rank", "value": {"stringValue": "1"}} in cause["attributes"] for cause in causes)


@pytest.mark.parametrize("switch", [{"OTEL_METRICS_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}])
def test_nothing_is_sent_where_that_is_not_wanted(env: dict[str, str], collector: Collector, switch: dict[str, str]) -> None:
    done = hvdrun.run(*argv(steps=20), env=env | switch)
    assert done.returncode == 0, done.stderr
    assert not collector.got


def test_a_collector_that_refuses_is_told_of_once_and_ends_no_job(env: dict[str, str], collector: Collector) -> None:
    collector.status = 503
    done = hvdrun.run(*argv(), env=env)
    assert done.returncode == 0, done.stderr
    assert len(collector.got) >= 2  # one at the start, one at the end
    assert done.stderr.count("the metrics do not reach http://127.0.0.1:") == 1
    assert "503" in done.stderr


def test_a_collector_that_is_not_there(env: dict[str, str]) -> None:
    done = hvdrun.run(*argv(steps=20), env=env | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the metrics do not reach http://127.0.0.1:9/v1/metrics: curl: (7) ") == 1


def test_a_collector_that_does_not_answer_holds_up_the_end_for_some_seconds(env: dict[str, str]) -> None:
    """The collector accepts no connection: connections wait in the kernel's queue until curl's time limit."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        done = hvdrun.run("-np", "2", "--", "true", env=env | variables)
        took = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the metrics do not reach ") == 1
    assert "timed out" in done.stderr.lower()
    assert took < hvdrun.within(8)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
            "'collector:4318/v1/metrics' is no http",
        ),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "key"}, "OTEL_EXPORTER_OTLP_HEADERS: has a part that is not key=value"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "key=a%0d%0aX: y"}, "OTEL_EXPORTER_OTLP_HEADERS: has a part that is not key=value"),
    ],
)
def test_what_cannot_be_used_is_an_error(env: dict[str, str], variables: dict[str, str], said: str) -> None:
    done = hvdrun.run(*argv(steps=2), env=env | variables)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr


def test_no_key_shows_in_a_process_list(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """curl reads it from a private file that disappears with the job; a test program curl, first in PATH, keeps its input."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = f'echo "$@" >{tmp_path}/called; cp -p "$(echo "$@" | sed "s/.*--config //")" {tmp_path}/configuration'
    (folder / "curl").write_text(f"#!/bin/sh\n{script}\ncat >{tmp_path}/body\n")
    (folder / "curl").chmod(0o755)
    done = hvdrun.run(
        *argv("--allow-writable", steps=20),
        env=env | {"PATH": f"{folder}:{os.environ['PATH']}", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=hidden"},
    )
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "called").read_text()
    assert "hidden" not in called
    assert 'header = "api-key: hidden"' in (tmp_path / "configuration").read_text()
    assert (tmp_path / "configuration").stat().st_mode & 0o777 == 0o600
    assert not pathlib.Path(called.split()[-1]).exists()
    assert json.loads((tmp_path / "body").read_text())["resourceMetrics"]


def test_a_body_of_many_ranks_is_sent_whole(env: dict[str, str], collector: Collector) -> None:
    """A body may be longer than a line of curl's configuration file, which older versions limit to 100 KiB."""
    done = hvdrun.run(*argv(steps=20), env=env | {"OTEL_RESOURCE_ATTRIBUTES": "long=" + "x" * 120_000})
    assert done.returncode == 0, done.stderr
    attributes = collector.got[-1][2]["resourceMetrics"][0]["resource"]["attributes"]
    assert {"key": "long", "value": {"stringValue": "x" * 120_000}} in attributes
