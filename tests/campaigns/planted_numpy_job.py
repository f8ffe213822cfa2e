"""The NumPy job of slowness.py, without any framework: planted_numpy_job.py CAUSE RANK STEPS; RANK -1: all ranks have it."""

from __future__ import annotations

import os
import pathlib
import tempfile
import time

import numpy
from planted_cause import CAUSE, ON_A_DEVICE, STEPS, planted

import hvd.numpy as hvd


def work(times: int) -> None:
    """Computes for about 0.2 ms each time."""
    if ON_A_DEVICE:
        time.sleep(times * 0.2e-3)
        return
    x = numpy.ones((120, 120), "f4")
    for _ in range(times):
        x = numpy.clip(x @ x, 0, 1)


def main() -> None:
    """See the file's comment."""
    if planted("all ranks on one core"):
        os.sched_setaffinity(0, {0})
    hvd.init()
    length = 8_000 if CAUSE == "a short step" else 500_000
    gradient, state = numpy.ones(length, "f4"), numpy.ones(10_000_000, "f4")
    with tempfile.TemporaryDirectory() as folder:
        for step in range(STEPS):
            work(60 if planted("twice the work") else 15)
            if planted("pause"):
                time.sleep(0.015)
            if planted("np.save") and step % 20 == 0:
                numpy.save(pathlib.Path(folder) / "state.npy", state)
            if planted("evaluation now and then") and step % 25 == 24:
                work(600)
            hvd.allreduce(gradient, name="gradient")
            hvd.allreduce(gradient[:16], name="loss")
    hvd.shutdown()


main()
