"""A rank reports a finding of --agreement to its guard in the format of src/wire/shared/agreement_finding.h."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from hvd._agreement import findings
from python.guard_link import guard_end, received


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with guard_end(monkeypatch) as end:
        yield end


def test_a_parameter(guard: socket.socket) -> None:
    line = "parameter layer.0.weight, elements 0-640, is not on rank 1 (h) what it is on the others"
    findings.tell("parameter_differs", line, 3, [1])
    found = received(guard, "finding")
    assert found.pop("time_ns") > 0
    assert found == {"kind": "parameter_differs", "tensor": "parameter layer.0.weight", "step": 3, "ranks": [1], "text": line}


def test_a_line_without_a_tensor(guard: socket.socket) -> None:
    findings.tell("parameter_differs", "the list of tensors is not on rank 1 (h) what it is on the others", 3, [1])
    assert received(guard, "finding")["tensor"] == ""


@pytest.mark.parametrize(
    ("origin", "ranks"),
    [
        (", from rank 1", [1]),
        (", from ranks 0-2, 5", [0, 1, 2, 5]),
        (", from rank 3 or by an overflow", [3]),
        (", from a rank that is not known", []),
        (", which overflowed", []),
    ],
)
def test_a_sum(origin: str, ranks: list[int], guard: socket.socket) -> None:
    line = f"NaN in the sum 'allreduce.a, 'b'' in step 812, element 70417{origin} (seen on host node1)"
    findings.tell("not_finite", line, 3, [])
    found = received(guard, "finding")
    assert (found["tensor"], found["step"], found["ranks"], found["text"]) == ("allreduce.a, 'b'", 812, ranks, line)


def test_limits(guard: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    findings.tell("repaired", "rank 1 has got " + "ä" * 5000, 3, range(1000))
    found = received(guard, "finding")
    assert found["tensor"] == "" and len(found["text"]) == 1000 and len(found["ranks"]) == 64
    findings.tell("", "a line that is no finding", 3, [])
    monkeypatch.setenv("HVD_LINK_FD", "-1")
    findings.tell("repaired", "without hvdrun", 3, [])
    with pytest.raises(BlockingIOError):
        guard.recv(1)
