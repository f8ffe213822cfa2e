"""The call of a rank that disagrees goes to the guard (src/wire/shared/mismatched_call.h)."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from hvd import exceptions
from hvd._runtime import mismatched_calls
from python.guard_link import guard_end, received

MISMATCH, PEER_LOST = 3, 5  # hvd_status


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with guard_end(monkeypatch) as end:
        yield end


def call_told(link: socket.socket) -> tuple[str, str]:
    """The error, and the functions of the stack."""
    told = received(link, "mismatched_call")
    return told["error"], " ".join(re.findall(r" in (\w+)$", "\n".join(told["stack"]), re.MULTILINE))


def test_only_a_mismatch_is_told_with_the_present_stack(guard: socket.socket) -> None:
    exceptions.from_status(PEER_LOST, "rank 1 is gone")
    exceptions.from_status(MISMATCH, "ranks disagree on shape" + 1000 * "x")
    error, functions = call_told(guard)
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
    assert "asynchronous_call" not in call_told(guard)[1]
    assert "asynchronous_call" in call_told(guard)[1]
    with pytest.raises(BlockingIOError):
        guard.recv(1)


def test_without_hvdrun_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HVD_LINK_FD", raising=False)
    assert str(exceptions.from_status(MISMATCH, "ranks disagree")) == "ranks disagree"
