"""An actor, a node or the driver dies: the job ends with the reason, and nothing stays."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import time

import pytest

from netns.cluster import wait_for
from spark.session import Driver
from support.hvdrun import patience

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("what", "said"),
    [("actor", "is gone"), ("node", "is gone"), ("second", "has lost the Ray actor that held its slot, and the job ends: .")],
)
def test_of_the_second_rank(cluster: Driver, tmp_path: pathlib.Path, what: str, said: str) -> None:
    answer = cluster.ask("killed", folder=str(tmp_path), what=what)
    assert "value" in answer, answer
    error = answer["value"]["error"]
    assert re.match(rf"JobError: rank [01] on ray-\S+ {said}", error), error  # Ray may place rank 0 on the second node
    assert answer["value"]["seconds"] < 20 * patience()


def test_driver(cluster: Driver, tmp_path: pathlib.Path) -> None:
    other = s.driver(tmp_path, cluster.good("address"))
    other.send("wait_in_ranks", folder=str(tmp_path))
    files = [tmp_path / "0", tmp_path / "1"]
    try:
        wait_for(lambda: all(file.exists() and file.read_text() for file in files), 90.0, "ranks")
        other.process.send_signal(signal.SIGKILL)
        began = time.monotonic()
        pids = [int(file.read_text()) for file in files]
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 30.0, "the end of the ranks")
        assert time.monotonic() - began < 20 * patience()
    finally:
        other.close()
    assert cluster.good("executable") == [[7, 7], [9, 9]], "its slots are free again"
