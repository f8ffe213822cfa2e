"""A rank for test_lost_peer.py: the last rank dies while its part of what is queued on the GPUs is still missing."""

import os
import runpy
import signal
import time
from pathlib import Path

import torch

import hvd.torch as hvd

fake = runpy.run_path(str(Path(__file__).parents[1] / "python" / "ranks" / "fake_gpu.py"))
signal.alarm(90)  # whatever happens to whoever is to end it
hvd.init()
for name in ("a", "a", "b"):
    hvd.allreduce(torch.ones(100), op=hvd.Sum, name=name)
x = torch.ones(100)
if hvd.rank() == hvd.size() - 1:  # what makes its tensor takes long
    fake["driver"].fake_cuda_copy_later(x.data_ptr(), x.data_ptr(), 400, None, 900_000_000)
handle = hvd.allreduce_async_(x, op=hvd.Sum, name="missing")
if hvd.rank() == hvd.size() - 1:
    hvd.poll(handle)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1)
started = time.monotonic()
try:
    assert not hvd.poll(handle)
    while not hvd.poll(handle):
        time.sleep(0.01)
    hvd.synchronize(handle)
    text = "no error"
except hvd.HorovodInternalError as error:
    text = str(error)
again = "no error"
try:
    hvd.allreduce(torch.ones(1), name="after")
except hvd.HorovodInternalError as error:
    again = str(error)
os.write(1, f"SURVIVOR {hvd.rank()} {time.monotonic() - started:.2f} {text} | {again}\n".encode())
signal.pause()  # an end of this one would be news for the others; the test ends all
