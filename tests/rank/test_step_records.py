"""The embedded Python archive of a rank reads the steps of torch programs, on a machine with fewer cores than threads."""

from __future__ import annotations

import importlib.util
import pathlib
import time
from typing import Any

import pytest

START = pathlib.Path(__file__).resolve().parents[2] / "src/rank/python/start"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(START)
    specification = importlib.util.spec_from_file_location("hvdrank_steps_of_test", START / "hvdrank_steps.py")
    assert specification and specification.loader
    found = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(found)
    return found


def test_delays_in_waits_are_read_rarely(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collective takes some 20 µs, and so does a reading on a busy machine: not each wait may read."""
    delay, readings = 0, 0

    def delay_of(_: int) -> int:
        nonlocal readings
        readings += 1
        return delay

    monkeypatch.setattr(steps.Delays, "of", staticmethod(delay_of))
    recorder = steps.Recorder(bytearray())
    recorder.delays.cores_are_short = True
    wait = recorder.waits(lambda: None)
    readings, began = 0, time.monotonic_ns()
    for _ in range(2000):
        recorder.part_begin(steps.WAITING)
        recorder.part_end(steps.WAITING)
        wait()
    took = time.monotonic_ns() - began
    assert readings <= 5 + 3 * took / steps.READ_OWN_AGAIN_NS

    time.sleep(0.002)  # the last reading is old
    recorder.part_begin(steps.WAITING)
    delay = 7_000_000
    time.sleep(max(0.02, 2e-9 * recorder.delays.read_again_ns))
    recorder.part_end(steps.WAITING)
    assert recorder.delays.in_waits == recorder.delays.own_in_waits == 7_000_000

    def long_wait() -> None:
        nonlocal delay
        delay += 3_000_000
        time.sleep(max(0.02, 2e-9 * recorder.delays.read_again_ns))

    recorder.waits(long_wait)()
    assert recorder.delays.in_waits == recorder.delays.own_in_waits == 10_000_000
    recorder.stop()


def test_the_time_of_a_wait_counts_once(steps: Any) -> None:
    """Work.wait() by itself, and within a longer wait such as DistributedDataParallel's."""
    recorder = steps.Recorder(bytearray())
    wait = recorder.waits(lambda: time.sleep(0.01))
    began = time.monotonic_ns()
    wait()
    alone = recorder.sums[steps.WAITING]
    recorder.part_begin(steps.WAITING)
    wait()
    recorder.part_end(steps.WAITING)
    took = time.monotonic_ns() - began
    assert 10_000_000 <= alone <= took - 10_000_000 and 20_000_000 <= recorder.sums[steps.WAITING] <= took
    assert recorder.operations == 2 and recorder.within == [steps.WORK]
    recorder.stop()
