"""The call of a rank that disagrees goes to the guard (src/wire/shared/mismatched_call.h)."""

from __future__ import annotations

import json
import pathlib
import re
import socket
import struct
from typing import Any

import pytest

from hvd import exceptions
from hvd._runtime import mismatched_calls

MESSAGES = pathlib.Path(__file__).resolve().parents[2] / "src/wire/messages/message.h"
MISMATCH, PEER_LOST = 3, 5  # hvd_status


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Any:
    mine, guard = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setenv("HVD_LINK_FD", str(mine.fileno()))
    guard.setblocking(False)
    with mine, guard:
        yield guard


def received(guard: socket.socket) -> tuple[str, str]:
    """The error, and the functions of the stack."""
    packet = guard.recv(1 << 16)
    number = int(re.search(r"\bmismatched_call = (\d+),", MESSAGES.read_text()).group(1))  # type: ignore[union-attr]
    assert struct.unpack("<II", packet[:8]) == (len(packet) - 8, number)
    told = json.loads(packet[8:])
    return told["error"], " ".join(re.findall(r" in (\w+)$", "\n".join(told["stack"]), re.MULTILINE))


def test_only_a_mismatch_is_told_with_the_present_stack(guard: socket.socket) -> None:
    exceptions.from_status(PEER_LOST, "rank 1 is gone")
    exceptions.from_status(MISMATCH, "ranks disagree on shape" + 1000 * "x")
    error, functions = received(guard)
    assert error.startswith("ranks disagree on shape") and len(error) == 300
    assert functions.startswith("tell from_status test_only_a_mismatch_is_told_with_the_present_stack")
    with pytest.raises(BlockingIOError):
        guard.recv(1)


def test_the_stack_of_the_call_counts_more_than_that_of_a_wait(guard: socket.socket) -> None:
    def asynchronous_call() -> mismatched_calls.Stack:
        return mismatched_calls.present_stack()

    stack = asynchronous_call()
    exceptions.from_status(MISMATCH, "ranks disagree: once")
    mismatched_calls.tell("ranks disagree: once", stack)
    exceptions.from_status(MISMATCH, "ranks disagree: once")  # a second wait
    assert "asynchronous_call" not in received(guard)[1]
    assert "asynchronous_call" in received(guard)[1]
    with pytest.raises(BlockingIOError):
        guard.recv(1)


def test_without_hvdrun_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HVD_LINK_FD", raising=False)
    assert str(exceptions.from_status(MISMATCH, "ranks disagree")) == "ranks disagree"
