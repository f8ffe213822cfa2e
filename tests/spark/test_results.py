"""The ranks' results: small ones through Spark, large ones over the channel, with any memory of Java."""

from __future__ import annotations

import io
import os
import pathlib
import pickle
import struct
import zlib

import pytest

from hvd._job.results import results
from hvd.spark._relay import Kept

from . import session as s

REASON = s.why_not()
spark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
pytestmark = pytest.mark.timeout(300)


@spark
def test_larger_than_javas_memory_takes(local: s.Driver) -> None:
    """2 × 150 MB, with 512 and 640 MB for an executor and the driver; no file is left at the driver."""
    answer = local.good("large_results", megabytes=150, limit=150.0)
    assert answer == {"found": [[150, True], [150, True]], "left": []}


@spark
def test_the_driver_has_no_room(local: s.Driver) -> None:
    """The error names the place and the remedy; the session continues."""
    answer = local.ask("results_without_room", megabytes=20)
    assert answer["kind"] == "RuntimeError", answer
    assert "the results are 42 MB, and the driver cannot keep them in /" in answer["error"], answer["error"]
    assert "File too large (make room, or name another folder: spark.local.dir)" in answer["error"], answer["error"]
    assert local.good("large_results", megabytes=1)["found"] == [[1, True], [1, True]]


@spark
def test_the_end_of_a_result_cannot_be_pickled(local: s.Driver) -> None:
    """The first cause arrives after the bytes that the channel had carried."""
    answer = local.ask("result_that_breaks_off", megabytes=40)
    assert answer["kind"] == "JobError" and "rank 0 on 127.0.0.1 ended with exit code 1" in answer["error"], answer
    assert "the result of this rank, a tuple, cannot be pickled: cannot pickle '_thread.lock' object" in answer["error"]


@spark
@pytest.mark.nightly
def test_the_driver_cannot_be_reached(local: s.Driver) -> None:
    """Fitting results go through Spark; larger ones give an error with the port."""
    assert local.good("results_without_a_channel", megabytes=20)["found"] == [[20, True], [20, True]]
    answer = local.ask("results_without_a_channel", megabytes=50)
    assert answer["kind"] == "RuntimeError", answer
    assert "the results are 105 MB, too large to go through Spark" in answer["error"], answer["error"]
    assert "cannot reach the driver at tcp://127.0.0.77:" in answer["error"], answer["error"]


@spark
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_model_of_4_gigabytes(tmp_path: pathlib.Path) -> None:
    """Only rank 0 returns a large result. Each JVM has 1 GB."""
    driver = s.local_cluster(tmp_path, memory_mb=1024)
    try:
        answer = driver.ask("large_results", megabytes=4096, only=0, limit=900.0)
        print(f"4 GiB: {answer['seconds']:.0f} s")
        assert answer["value"] == {"found": [[4096, True]], "left": []}, answer
    finally:
        driver.close()


def test_a_connection_that_broke_off(tmp_path: pathlib.Path) -> None:
    """Fewer bytes than were sent; no file has a name while it exists."""
    kept = Kept(str(tmp_path))
    os.write(kept.write_end, b"three")
    kept.given_away()
    while kept.pump():
        pass
    assert list(tmp_path.iterdir()) == []
    kept.refuse_less_than(5)
    with pytest.raises(RuntimeError, match="of 9 bytes of results only 5 reached the driver: the connection broke off"):
        kept.refuse_less_than(9)
    kept.close()


def record(rank: int, data: bytes) -> bytes:
    """A record in hvdrun's format."""
    return struct.pack("<IIQ", rank, 0, len(data)) + data


def whole(value: object) -> bytes:
    """A rank's pickle with its end."""
    data = pickle.dumps(value, protocol=5)
    return data + struct.pack("<QI", len(data), zlib.crc32(data))


def test_pieces_of_several_ranks_mixed() -> None:
    """Pieces in their order of arrival."""
    one, two = whole(["one"] * 100), whole({"two": 2})
    pieces = [record(0xFFFFFFFE, b""), record(0, one[:50]), record(1, two[:3]), record(0, one[50:]), record(1, two[3:])]
    assert results(io.BytesIO(b"".join(pieces)), range(2), 0, "") == [["one"] * 100, {"two": 2}]
    assert results(io.BytesIO(b"".join(pieces)), [1], 0, "") == [{"two": 2}]


@pytest.mark.parametrize("harm", ["a piece is missing", "a byte is wrong", "the end is missing", "nothing came"])
def test_what_did_not_come_whole_is_told(harm: str) -> None:
    """The driver unpickles no part of an incomplete result."""
    data = whole("x" * 300)
    pieces = {
        "a piece is missing": [data[:100], data[200:]],
        "a byte is wrong": [data[:100], b"y", data[101:]],
        "the end is missing": [data[:-20]],
        "nothing came": [b"x"],
    }[harm]
    with pytest.raises(RuntimeError, match="rank 0's result did not come whole"):
        results(io.BytesIO(b"".join(record(0, piece) for piece in pieces)), [0], 0, "")


def test_a_failure_counts_more_than_results() -> None:
    """The first cause is reported, also after incomplete results."""
    cause = record(0xFFFFFFFF, b'{"rank": 1, "host": "a", "cause": "exited", "code": 3, "text": "why"}')
    with pytest.raises(RuntimeError, match="rank 1 on a ended with exit code 3\nwhy"):
        results(io.BytesIO(record(0, b"cut off") + cause), range(2), 3, "")
    with pytest.raises(RuntimeError, match="what hvdrun said\nhvdrun ended with code 3"):
        results(io.BytesIO(record(0, b"cut off") + cause[:20]), range(2), 3, "what hvdrun said")
