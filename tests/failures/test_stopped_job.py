"""Limits on ranks do not count the time in which the job is stopped: Ctrl-Z, or SIGSTOP to hvdrun."""

from __future__ import annotations

import pathlib
import signal
import time

import pytest

from support import hvdrun
from support.forms import few

WAITS = """
import os, time, hvd.numpy as hvd
print("up", flush=True)
while os.environ["HVD_RANK"] == "1" and not os.path.exists("gate"):
    time.sleep(0.1)
hvd.init()
print("met", hvd.size(), flush=True)
"""


def test_the_limit_of_init(tmp_path: pathlib.Path, with_package: dict[str, str]) -> None:
    """HVD_INIT_TIMEOUT, while one rank waits for the other."""
    limit = round(hvdrun.within(3))  # the ranks need some time before the stop and after it
    env = {**with_package, "HVD_INIT_TIMEOUT": str(limit)}
    options = ["-np", "2", *hvdrun.python_args(), "job.py"]
    (tmp_path / "job.py").write_text(WAITS)
    with hvdrun.started(*options, cwd=tmp_path, env=env) as job:
        for _ in range(2):
            assert hvdrun.next_line(job.stdout).endswith("up\n")
        job.send_signal(signal.SIGTSTP)
        assert hvdrun.next_line(job.stderr).startswith("hvdrun: the ranks are stopped; ")
        time.sleep(limit + 2)
        (tmp_path / "gate").touch()
        job.send_signal(signal.SIGCONT)
        output, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors
    assert output.count("met 2\n") == 2


@pytest.mark.parametrize("number", few([signal.SIGTSTP, signal.SIGSTOP]))
def test_the_limit_of_the_start(number: signal.Signals, tmp_path: pathlib.Path) -> None:
    """--start-timeout, while the host daemon comes up slowly."""
    limit = round(hvdrun.within(3))
    slow = tmp_path / "hvdrank"
    slow.write_text(f'#!/bin/sh\ntouch {tmp_path}/begun\nsleep {limit + 4}\nexec "$REAL" "$@"\n')
    slow.chmod(0o755)
    real = pathlib.Path(hvdrun.program()).parents[1] / "src/rank/hvdrank"
    env = {"HVD_RANK_PROGRAM": str(slow), "REAL": str(real)}
    with hvdrun.started("-np", "1", "--start-timeout", str(limit), "--", "echo", "ran", env=env) as job:
        hvdrun.wait_until((tmp_path / "begun").exists, "the start of the daemon")
        job.send_signal(number)
        time.sleep(limit + 3)
        job.send_signal(signal.SIGCONT)
        output, errors = job.communicate(timeout=60)
    assert (job.returncode, output) == (0, "[0 localhost] ran\n"), errors
