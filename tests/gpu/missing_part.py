"""For ranks of test_lost_peer.py: an exchange on the fake GPU to which the last rank never contributes."""

from __future__ import annotations

import os
import runpy
import signal
import time
from pathlib import Path
from typing import Any

import torch

import hvd.torch as hvd

driver: Any = runpy.run_path(str(Path(__file__).parents[1] / "python" / "ranks" / "fake_gpu.py"))["driver"]
LATE_US = 900_000_000


def start() -> None:
    """hvd.init(), and the first operations, which make the connections."""
    signal.alarm(90)  # ends this rank if the test does not
    hvd.init()
    for name in ("a", "a", "b"):
        hvd.allreduce(torch.ones(100), op=hvd.Sum, name=name)


def exchange(tensor: torch.Tensor) -> int:
    """Submits the tensor, of 100 float32.  The last rank dies a second later, with its part not computed."""
    is_last = hvd.rank() == hvd.size() - 1
    if is_last:
        driver.fake_cuda_copy_later(tensor.data_ptr(), tensor.data_ptr(), 400, None, LATE_US)
    handle: int = hvd.allreduce_async_(tensor, op=hvd.Sum, name="missing")
    if is_last:
        hvd.poll(handle)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    return handle
